# Everything a developer types. `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
METADATA := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

.PHONY: install demo test lint format bench clean

install: $(VENV)/.installed

$(VENV)/.installed: $(METADATA) Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --dry-run --report - $(TORCH) | $(BIN)/python .ci/refuse_gpu_build.py
	$(BIN)/python -m pip install --quiet $(TORCH) --editable ".[cli,testing]" \
		$(addprefix --editable ./,$(PLUGINS)) --group dev
	touch $@

demo: install
	$(BIN)/python docs/demo.py

test: install
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy cartridge_core tests docs benchmarks .ci
	set -e; for plugin in $(PLUGINS); do \
		MYPYPATH=$$plugin:$$plugin/tests $(BIN)/mypy $$plugin/cartridge_* $$plugin/tests; done

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
