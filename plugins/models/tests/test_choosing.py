"""Which files of a repository are meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cartridge_core.modelspec import HubSpec
from cartridge_models.choosing import chosen, is_plain, single

NAMES = st.text("ab./[]!-*?", min_size=1, max_size=8)
GLOBS = st.lists(st.text("ab./[]!-*?", min_size=1, max_size=5), max_size=2).map(tuple)


@given(st.lists(NAMES, max_size=6, unique=True), GLOBS, GLOBS)
def test_globs_mean_what_they_mean_to_the_hubs_library(
    names: list[str], include: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    """Include and exclude choose what huggingface_hub's own filter chooses."""
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    spec = HubSpec("a/b", include=include, exclude=exclude)
    theirs = filter_repo_objects(
        names, allow_patterns=list(include) or None, ignore_patterns=list(exclude) or None
    )
    assert chosen(names, spec) == tuple(sorted(theirs))


SHARDS = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
ALL = [*SHARDS, "n-00001-of-00001.gguf", "sub/m-00002-of-00003.gguf", "config.json"]


@pytest.mark.parametrize(
    ("include", "exclude", "names", "one"),
    [
        pytest.param(("m-00001*",), (), SHARDS, SHARDS[0], id="one-shard-brings-all"),
        pytest.param(("m-00003*",), (), SHARDS, SHARDS[0], id="the-last-too"),
        pytest.param(("m-*",), (), SHARDS, SHARDS[0], id="all-shards"),
        pytest.param(("m-*",), ("*00002*",), [SHARDS[0], SHARDS[2]], SHARDS[0], id="exclude-wins"),
        pytest.param(("n-*",), (), [ALL[3]], ALL[3], id="a-set-of-one"),
        pytest.param(("*.json",), (), ["config.json"], "config.json", id="one-file"),
        pytest.param(("m-*", "*.json"), (), ["config.json", *SHARDS], None, id="two-globs"),
        pytest.param(("*.gguf",), (), sorted(ALL[:5]), None, id="two-models"),
        pytest.param((), ("*.gguf",), ["config.json"], None, id="no-include"),
        pytest.param(("*.bin",), (), [], None, id="nothing"),
    ],
)
def test_shards_come_together(
    include: tuple[str, ...], exclude: tuple[str, ...], names: list[str], one: str | None
) -> None:
    """Whoever asks for a shard gets its set; the model is then the first of them."""
    spec = HubSpec("a/b", include=include, exclude=exclude)
    assert list(chosen(ALL, spec)) == names
    assert single(chosen(ALL, spec), spec) == one


@pytest.mark.parametrize("name", ["/x", "../x", "a/../x", "a//x", "a\\x", "x\0", "", ".", "a/"])
def test_error_name_that_leads_outside(name: str) -> None:
    """A name that would not stay in its folder is no plain one."""
    assert not is_plain(name)
    assert is_plain("a/b.c")
