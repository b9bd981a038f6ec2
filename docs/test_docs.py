"""What README.md and docs/ say is so: examples run as printed, and reference is complete."""

from __future__ import annotations

import contextlib
import doctest
import enum
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

import cartridge_core
from cartridge_core import (
    Call,
    Cartridge,
    Descriptor,
    InvalidArgumentError,
    Phase,
    Registry,
    ResultKind,
    Session,
    SessionState,
    errors,
    tasks,
    testing,
)
from cartridge_core.__main__ import main
from cartridge_core.hookspecs import HOOKS_VERSION, HookSpecs
from cartridge_core.schema import Schema
from cartridge_core.testing.contract import CartridgeContract
from cartridge_core.testing.describing import Describing
from cartridge_core.testing.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sybil import Example

DOCS = Path(__file__).parent
ROOT = DOCS.parent
README = ROOT / "README.md"
TUTORIALS = {
    DOCS / "first-cartridge.md": "cartridge-words",
    DOCS / "streaming-cartridge.md": "cartridge-sentences",
}
"""The pages that are followed step by step, and the distribution that each leads to."""

PLUGINS = sorted(ROOT.glob("plugins/*/README.md"))
PAGES = [*sorted([README, *DOCS.glob("*.md")]), *PLUGINS]
PACKS = DOCS / "packs.md"
IN_A_FOLDER = [PACKS, DOCS / "native.md"]
"""Pages whose commands make files where the reader is."""

SHELL = ("cc", "cp", "make", "mkdir", "openssl", "python", "./ctg_host")
"""Commands other than ours that console blocks have."""

WITH_A_MODEL = [README, DOCS / "python-api.md", PACKS, *PLUGINS]
"""Pages whose examples run a real model."""

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
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the environment of a reader who installed this project's plugins and set nothing."""
    for name in os.environ:
        if name.startswith("CARTRIDGE_") and name != "CARTRIDGE_CACHE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "gguf,models,native,torch,whisper")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def run_commands(example: Example) -> None:
    """Run the ``$ cartridge`` commands of a block in this process, and those of a shell outside."""
    status = 0
    for command, printed in _COMMAND.findall(example.parsed):
        verb, *words = shlex.split(command)
        output = io.StringIO()
        if verb == "echo":
            output.write(f"{status}\n")
        elif verb in SHELL:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            variables = {**os.environ, "CHECKOUT": str(ROOT), "PATH": path}
            done = subprocess.run(  # noqa: S602 -- what the page tells a reader to type
                command, shell=True, env=variables, capture_output=True, text=True, check=False
            )
            status = done.returncode
            output.write(done.stdout + (done.stderr if status else ""))
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
        pytest.param(
            page,
            marks=[pytest.mark.integration] if page in WITH_A_MODEL else [],
            id=page.relative_to(ROOT).as_posix(),
        )
        for page in PAGES
        if page not in TUTORIALS
    ],
)
def test_examples_run_as_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every Python and console block of a page runs, in order, and gives what is printed."""
    if page in IN_A_FOLDER:
        monkeypatch.chdir(tmp_path)
        for name, text in _FILE.findall(page.read_text(encoding="utf-8")):
            Path(name).write_text(text, encoding="utf-8")
    document = EXAMPLES.parse(page)
    document.namespace["__name__"] = "__main__"
    for example in document.examples():
        example.evaluate()


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted(ROOT.glob("C*.md"))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
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


def documented() -> dict[str, str]:
    """Give the section of every name that python-api.md has a signature of."""
    sections = re.split(r"^### `([\w.]+)`$", read("python-api.md"), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


def is_enum(name: str) -> bool:
    """Say whether a name on python-api.md is an enum's, which has a table and no signature."""
    return isinstance(of_code(name), enum.EnumType)


def of_code(name: str) -> object:
    """Give what a name on python-api.md stands for: the code of a method, a function or a class."""
    owner, _, member = name.rpartition(".")
    if owner in {"", "tasks"}:
        return getattr(tasks if owner else cartridge_core, member)
    return inspect.getattr_static(getattr(cartridge_core, owner), member)


def function_of(found: object) -> Callable[..., object]:
    """Give the function behind a class, a property, a class method or a function."""
    if isinstance(found, type):
        found = vars(found)["__init__"]
    elif isinstance(found, property):
        found = found.fget
    elif isinstance(found, classmethod):
        found = found.__func__
    assert inspect.isfunction(found)
    return found


def signature(found: object) -> list[object]:
    """Give what it is, its parameters with kinds, defaults and types, and what it returns."""
    function = function_of(found)
    module = sys.modules.get(function.__module__)

    def spell(annotation: object) -> str:
        public = re.sub(
            r"\b_[A-Z]\w+", lambda alias: str(getattr(module, alias[0])), str(annotation)
        )
        return re.sub(r"\b[a-z]+\.", "", public)

    whole = inspect.signature(function)
    return [
        type(found) if isinstance(found, property | classmethod) else None,
        *(
            (one.name, one.kind, one.default, spell(one.annotation))
            for one in whole.parameters.values()
        ),
        spell(whole.return_annotation),
    ]


def test_the_python_api_is_documented_completely() -> None:
    """python-api.md has every public member of what a caller holds, and every task."""
    held = [Registry, Call, Cartridge, Session]
    members = {f"{one.__name__}.{name}" for one in held for name in vars(one) if name[0] != "_"}
    members.remove("Cartridge.revoke")  # the registry's
    values = {"Result", "ResultKind", "Progress", "Phase", "Log", "Record", "SessionState"}
    assert set(documented()) == members | values | {f"tasks.{name}" for name in tasks.__all__}


@pytest.mark.parametrize("name", [name for name in documented() if not is_enum(name)])
def test_a_signature_in_the_python_api_is_that_of_the_code(name: str) -> None:
    """Names, kinds, defaults and types of the parameters, and the type returned, are the same."""
    (text,) = blocks(documented()[name], "pyi")
    namespace: dict[str, object] = {"__name__": "page"}
    exec(f"from __future__ import annotations\n{text}", namespace)  # noqa: S102 -- a signature
    assert signature(namespace[name.rpartition(".")[2]]) == signature(of_code(name))


@pytest.mark.parametrize("name", [name for name in documented() if not is_enum(name)])
def test_the_python_api_names_what_is_raised(name: str) -> None:
    """What a docstring has under Raises stands in the section too."""
    raised = set(re.findall(r"^ +(\w+Error):", inspect.getdoc(of_code(name)) or "", re.MULTILINE))
    assert raised <= set(re.findall(r"`(\w+Error)`", documented()[name]))


@pytest.mark.parametrize("kind", [ResultKind, Phase, SessionState], ids=lambda kind: kind.__name__)
def test_the_python_api_has_every_member_of_an_enum(kind: type[enum.Enum]) -> None:
    """The table below the heading of an enum has its members, in their order."""
    names = [row[0] for row in rows(read("python-api.md"), f"`{kind.__name__}`")]
    assert names == [member.name for member in kind]


def test_the_typed_example_is_typed(tmp_path: Path) -> None:
    """Mypy finds in the example of the section Types what its comments say, and nothing else."""
    section = read("python-api.md").partition("## Types\n")[2].partition("\n## ")[0]
    (text,) = blocks(section, "python")
    page = tmp_path / "page.py"
    page.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--hide-error-codes"]
    command += ["--no-error-summary", f"--cache-dir={tmp_path / 'cache'}", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- mypy
    expected = [
        f"{page}:{number}: error: {line.partition('# error: ')[2]}"
        for number, line in enumerate(text.splitlines(), 1)
        if "# error: " in line
    ]
    assert done.stdout.splitlines() == expected


def test_what_an_author_says_to_the_contract_suite_is_documented() -> None:
    """The table of contract.md has what a class may override, with its arguments, and no more."""
    classes = {
        name: getattr(testing, name) for name in testing.__all__ if name.endswith("Contract")
    }
    classes["all"] = Subject
    page = read("contract.md")
    for member, owner, usual, _ in rows(page, "What an author says"):
        name, _, arguments = member.partition("(")
        found = vars(classes[owner]).get(name)
        if arguments:
            assert list(inspect.signature(found).parameters) == arguments.strip(")").split(", ")
        elif isinstance(found, tuple | float):
            assert usual == repr(found)
    fixtures = {row[0] for row in rows(page, "Fixtures for tests of your own")}
    told = {row[0].partition("(")[0] for row in rows(page, "What an author says")}
    members = {name for name in vars(Subject) | Subject.__annotations__ if name[0] != "_"}
    assert told | fixtures == members | {"chunks", "slow_value"}


@pytest.mark.parametrize(
    ("heading", "classes"),
    [
        ("Facts about every cartridge", [Describing, CartridgeContract]),
        (
            "Facts about a batch cartridge",
            [testing.BatchContract, testing.CancellableBatchContract],
        ),
        ("Facts about a streaming cartridge", [testing.StreamingContract]),
    ],
)
def test_every_fact_of_the_contract_suite_is_documented(heading: str, classes: list[type]) -> None:
    """The tables of contract.md have the tests of the classes, in the words of their docstrings."""
    tests = {
        name: test for one in classes for name, test in vars(one).items() if name[:5] == "test_"
    }
    found = {row[0]: row[1] for row in rows(read("contract.md"), heading) if row[0][:5] == "test_"}
    assert found == {
        name: str(test.__doc__).splitlines()[0].replace("``", "`") for name, test in tests.items()
    }


def test_the_example_of_the_contract_suite_passes_it(tmp_path: Path) -> None:
    """The test class that contract.md shows, run by pytest, finds the example good."""
    page = tmp_path / "test_page.py"
    page.write_text("\n".join(blocks(read("contract.md"), "python")), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", str(page)]
    done = subprocess.run(  # noqa: S603 -- pytest, in a folder of its own
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


@attrs.frozen
class Reader:
    """Somebody who follows a tutorial, in an environment that sees the packages of this one."""

    folder: Path
    variables: Mapping[str, str]

    @classmethod
    def prepare(cls, scratch: Path, distribution: str) -> Reader:
        """Give an empty folder for a plugin, and an environment of its own."""
        venv.create(scratch / "venv")
        programs = scratch / "venv" / "bin"
        variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        plugin = distribution.removeprefix("cartridge-")
        variables["CARTRIDGE_PLUGINS"] = f"models,torch,{plugin}"
        for name in ("PYTHONPATH", "VIRTUAL_ENV"):
            variables.pop(name, None)
        (scratch / distribution).mkdir()
        reader = cls(scratch / distribution, variables)
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
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_a_tutorial_leads_to_a_plugin_that_works(page: Path, tmp_path: Path) -> None:
    """Files and commands exactly as printed give a package that is found, called and correct."""
    reader = Reader.prepare(tmp_path, TUTORIALS[page])
    for step in steps(page.read_text("utf-8")):
        if isinstance(step, str):
            for command, printed in _COMMAND.findall(step):
                output = reader.type(command, fails=printed.startswith("error: "))
                check_output(command, printed, output)
        else:
            name, text = step
            file = reader.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


def steps(page: str) -> Iterator[str | tuple[str, str]]:
    """Give a tutorial's steps in order: a file's name and text, or a console block."""
    console = re.compile(_FENCE.format(language="console"), re.MULTILINE | re.DOTALL)
    files = {match.start(): (match[1], match[2]) for match in _FILE.finditer(page)}
    commands = {match.start(): match[1] for match in console.finditer(page)}
    places: dict[int, str | tuple[str, str]] = {**files, **commands}
    for place in sorted(places):
        yield places[place]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_every_block_of_a_tutorial_is_a_file_or_is_run(page: Path) -> None:
    """A reader types nothing there that the test above does not, the set-up alone excepted."""
    text = page.read_text("utf-8")
    fences = re.findall(r"^```(\w+)$", text, re.MULTILINE)
    assert fences.count("console") + len(_FILE.findall(text)) + fences.count("sh") == len(fences)
    setup = text.partition("## Set up")[2].partition("\n## ")[0]
    assert setup.count("```sh") == fences.count("sh")
