"""What README.md and docs/ say is so: examples run as printed, and reference is complete."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from cartridge_core import Descriptor, InvalidArgumentError, errors
from cartridge_core.__main__ import main
from cartridge_core.hookspecs import HOOKS_VERSION, HookSpecs
from cartridge_core.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sybil import Example

DOCS = Path(__file__).parent
ROOT = DOCS.parent
README = ROOT / "README.md"
TUTORIAL = DOCS / "first-cartridge.md"
PAGES = sorted([README, *DOCS.glob("*.md")])
OTHERS = sorted([*ROOT.glob("C*.md"), *ROOT.glob("plugins/*/README.md")])

_FENCE = r"^```{language}\n(.*?)^```$"
_FILE = re.compile(r"^File `([^`]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*(?:\n|\Z))*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_CHECKER = doctest.OutputChecker()


def read(page: str) -> str:
    """Give the text of a page of docs/."""
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Give the fenced blocks of a language."""
    pattern = _FENCE.format(language=language)
    return re.findall(pattern, text, re.MULTILINE | re.DOTALL)


def rows(text: str, heading: str) -> list[list[str]]:
    """Give the rows of the table below a heading, a cell's text each, code marks taken off."""
    section = re.split(r"^#+ ", text.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def check_output(command: str, printed: str, output: str) -> None:
    """Compare what a command printed with the page; ``...`` on the page stands for anything."""
    same = _CHECKER.check_output(printed, output, doctest.ELLIPSIS)
    assert same, f"$ {command}\nthe page says:\n{printed}\nit prints:\n{output}"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment of a reader who installed this project's plugins and set nothing."""
    for name in os.environ:
        if name.startswith("CARTRIDGE_") and name != "CARTRIDGE_CACHE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "models,torch")
    monkeypatch.setenv("COLUMNS", "80")


def run_commands(example: Example) -> None:
    """Run the ``$ cartridge`` commands of a block in this process."""
    status = 0
    for command, printed in _COMMAND.findall(example.parsed):
        verb, *words = shlex.split(command)
        output = io.StringIO()
        if verb == "echo":
            output.write(f"{status}\n")
        else:
            assert verb == "cartridge", f"{verb} in a console block; sh blocks are not run"
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                status = main(words)
        check_output(command, printed, output.getvalue())


EXAMPLES = Sybil(
    [PythonCodeBlockParser(), CodeBlockParser(language="console", evaluator=run_commands)]
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.integration] if page == README else [], id=page.name)
        for page in PAGES
        if page != TUTORIAL
    ],
)
def test_examples_run_as_printed(page: Path) -> None:
    """Every Python and console block of a page runs, in order, and gives what is printed."""
    document = EXAMPLES.parse(page)
    document.namespace["__name__"] = "__main__"
    for example in document.examples():
        example.evaluate()


@pytest.mark.parametrize(
    "page", [*PAGES, *OTHERS], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file or a folder that is there."""
    broken = [link for link in _LINK.findall(page.read_text("utf-8")) if not _is_there(page, link)]
    assert not broken


def _is_there(page: Path, link: str) -> bool:
    return (page.parent / link).exists()


def test_every_page_can_be_reached_from_the_index() -> None:
    """No page is an orphan."""
    links = set(_LINK.findall(read("index.md")))
    assert links >= {page.name for page in DOCS.glob("*.md")} - {"index.md"}


def test_readme_lists_every_environment_variable() -> None:
    """The table has the variables that the code names, and no others."""
    sources = [*ROOT.glob("cartridge_core/**/*.py"), *ROOT.glob("plugins/*/cartridge_*/**/*.py")]
    named = {
        name
        for source in sources
        for name in re.findall(r"\bCARTRIDGE_[A-Z]+\b", source.read_text("utf-8"))
    }
    listed = {row[0] for row in rows(README.read_text("utf-8"), "Environment variables")}
    assert listed == named


def test_every_hook_is_documented_with_its_arguments() -> None:
    """The headings of hooks.md are the hook specifications, in their order."""
    specs = inspect.getmembers(HookSpecs, inspect.isfunction)
    specs.sort(key=lambda spec: spec[1].__code__.co_firstlineno)
    expected = [
        f"{name}({', '.join(list(inspect.signature(spec).parameters)[1:])})" for name, spec in specs
    ]
    assert re.findall(r"^### `(cartridge_.*)`$", read("hooks.md"), re.MULTILINE) == expected


def test_the_number_of_the_hook_contract_is_documented() -> None:
    """The page of the hooks says which contract it describes."""
    assert f"The contract has the number {HOOKS_VERSION};" in read("hooks.md")


def test_every_error_is_documented_with_its_numbers() -> None:
    """The table of errors.md is the tree of errors.py: class, base, status and exit status."""
    classes = [getattr(errors, name) for name in errors.__all__]
    expected = {
        each.__name__: (each.__base__.__name__, str(each.status.value), str(10 - each.status))
        for each in classes
        if issubclass(each, errors.CartridgeError) and each is not errors.CartridgeError
    }
    expected["UrnError"] = ("InvalidArgumentError", *expected["UrnError"][1:])
    found = {name: tuple(cells[:3]) for name, *cells in rows(read("errors.md"), "The tree")}
    assert found == expected


def test_the_example_descriptor_is_valid() -> None:
    """The JSON that descriptor.md shows is a descriptor, and survives being written again."""
    (text,) = blocks(read("descriptor.md"), "json")
    descriptor = Descriptor.from_json(text)
    assert Descriptor.from_json(descriptor.to_json()) == descriptor


def test_every_field_of_a_descriptor_is_documented() -> None:
    """The three tables of descriptor.md have the fields that a descriptor is read into."""
    page = read("descriptor.md")
    own = {row[0] for row in rows(page, "Fields")}
    attributes = {row[0] for row in rows(page, "Attributes")}
    fields = {field.alias for field in attrs.fields(Descriptor)} - {"document"}
    assert own | attributes == fields | {"caps"}
    assert not own & attributes


def test_every_keyword_of_a_schema_is_documented() -> None:
    """The table of descriptor.md has the keywords that a schema may use."""
    with pytest.raises(InvalidArgumentError) as caught:
        Schema.compile({"no-such-keyword": 1}, "$")
    read_here = re.findall(r"\w+", (caught.value.rule or "").partition(":")[2])
    names = [row[0] for row in rows(read("descriptor.md"), "Schema keywords")]
    documented = [word for name in names for word in re.findall(r"\w+", name)]
    assert sorted(documented) == sorted(read_here)


@attrs.frozen
class Reader:
    """Somebody who follows the tutorial, in an environment that sees the packages of this one."""

    folder: Path
    variables: Mapping[str, str]

    @classmethod
    def prepare(cls, scratch: Path) -> Reader:
        """Give an empty project folder, and an environment of its own."""
        venv.create(scratch / "venv")
        programs = scratch / "venv" / "bin"
        variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        variables["CARTRIDGE_PLUGINS"] = "models,torch,words"
        for name in ("PYTHONPATH", "VIRTUAL_ENV"):
            variables.pop(name, None)
        (scratch / "cartridge-words").mkdir()
        reader = cls(scratch / "cartridge-words", variables)
        site = reader.type("python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'")
        borrowed = "\n".join(entry for entry in sys.path if entry)
        Path(site.strip(), "borrowed.pth").write_text(borrowed, encoding="utf-8")
        command = programs / "cartridge"
        command.write_text(f'#!/bin/sh\nexec {programs / "python"} -m cartridge_core "$@"\n')
        command.chmod(0o755)
        return reader

    def type(self, command: str, *, fails: bool = False) -> str:
        """Type a command; give what it prints, and hold how it ends against what it should."""
        offline = "pip install --no-build-isolation --no-deps --no-index"
        done = subprocess.run(  # noqa: S602 -- what the page tells a reader to type
            command.replace("pip install", offline),
            shell=True,
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"$ {command}\n{done.stdout}"
        return done.stdout


@pytest.mark.integration
def test_the_tutorial_leads_to_a_plugin_that_works(tmp_path: Path) -> None:
    """Files and commands exactly as printed give a package that is found, called and correct."""
    reader = Reader.prepare(tmp_path)
    for step in tutorial_steps():
        if isinstance(step, str):
            for command, printed in _COMMAND.findall(step):
                output = reader.type(command, fails=printed.startswith("error: "))
                check_output(command, printed, output)
        else:
            name, text = step
            file = reader.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


def tutorial_steps() -> Iterator[str | tuple[str, str]]:
    """Give the tutorial's steps in order: a file's name and text, or a console block."""
    page = read(TUTORIAL.name)
    console = re.compile(_FENCE.format(language="console"), re.MULTILINE | re.DOTALL)
    files = {match.start(): (match[1], match[2]) for match in _FILE.finditer(page)}
    commands = {match.start(): match[1] for match in console.finditer(page)}
    steps: dict[int, str | tuple[str, str]] = {**files, **commands}
    for place in sorted(steps):
        yield steps[place]


def test_every_block_of_the_tutorial_is_a_file_or_is_run() -> None:
    """A reader types nothing there that the test above does not, the set-up alone excepted."""
    page = read(TUTORIAL.name)
    fences = re.findall(r"^```(\w+)$", page, re.MULTILINE)
    assert fences.count("console") + len(_FILE.findall(page)) + fences.count("sh") == len(fences)
    setup = page.partition("## Set up")[2].partition("\n## ")[0]
    assert setup.count("```sh") == fences.count("sh")
