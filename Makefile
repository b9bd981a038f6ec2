# Everything a developer types. `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
LLAMA := llama-cpp-python==0.3.36
WHISPER := openai-whisper==20250625
METADATA := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

.PHONY: install demo test lint format bench soak clean

install: $(VENV)/.installed

$(VENV)/.installed: $(METADATA) Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --dry-run --report - $(TORCH) | $(BIN)/python .ci/refuse_gpu_build.py
	llama=$$($(BIN)/python plugins/gguf/scripts/build_llama_wheel.py $(LLAMA)) && \
	whisper=$$($(BIN)/python plugins/whisper/scripts/build_whisper_wheel.py $(WHISPER)) && \
	$(BIN)/python -m pip install --quiet $(TORCH) $(LLAMA) --only-binary llama-cpp-python \
		$(WHISPER)+cpu --find-links "$$llama" --find-links "$$whisper" --editable ".[cli,testing]" \
		$(addprefix --editable ./,$(PLUGINS)) --group dev
	touch $@

demo: install
	$(BIN)/python docs/demo.py

test: install
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy cartridge_core tests docs benchmarks .ci plugins/gguf/scripts plugins/models/scripts plugins/native/scripts plugins/torch/scripts plugins/whisper/scripts
	set -e; for plugin in $(PLUGINS); do \
		MYPYPATH=$$plugin:$$plugin/tests $(BIN)/mypy $$plugin/cartridge_* $$plugin/tests; done

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python benchmarks/run.py

soak: install
	$(BIN)/python benchmarks/soak.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
