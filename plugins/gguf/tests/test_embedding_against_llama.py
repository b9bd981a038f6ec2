"""The vectors of llama-cpp-python called directly, and ours."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.testing import registry_of
from cartridge_gguf import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.records import Record
    from cartridge_core.registry import Registry
    from cartridge_core.results import Result

    Vectors = NDArray[np.float32]

CAP = "cap:generate-embeddings"
SUBJECTS = ["The old cat", "My neighbour's bank", "Dr. O'Neill (59)", "It"]
OBJECTS = ["was late because of snow", "reads the café's menu", "sells 3.5% of Zürich!", ""]
TEXTS = [f"{a} {b}." for a in SUBJECTS for b in OBJECTS] + ["", "?", "the cat is red " * 20]


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry of this plugin alone."""
    with registry_of(plugin, isolation="inline") as registry:
        yield registry


def ours(
    registry: Registry, path: Path, texts: str | Sequence[str] = TEXTS, **arguments: object
) -> Vectors:
    """Embed texts with the cartridge."""
    call = cast("Callable[..., Result]", registry.call)
    result = call(CAP, texts, model_spec=path, **{"threads": 1, **arguments})
    return cast("Vectors", cast("Record", result.payload).vectors)


def direct(path: Path, texts: Sequence[str] = TEXTS, *, pooling: int = -1) -> Vectors:
    """Embed texts with the backend's own class, which wants a context that holds them."""
    import llama_cpp
    import numpy as np

    model = llama_cpp.Llama(
        str(path), embedding=True, n_ctx=512, n_threads=1, pooling_type=pooling, verbose=False
    )
    with contextlib.closing(model):
        return np.asarray(model.embed([*texts], normalize=True), np.float32)


def least_cosine(a: Vectors, b: Vectors) -> float:
    """Give the cosine of the two rows that differ most."""
    assert a.shape == b.shape
    return float((a * b).sum(axis=1).min())


@pytest.mark.parametrize(
    ("fixture", "pooling", "number"),
    [
        ("bert", None, -1),
        ("bert", "cls", 2),
        ("bert", "last", 3),
        ("llama", "mean", 1),
        ("llama", "last", 3),
    ],
)
def test_vectors_are_those_of_the_backends_own_class(
    registry: Registry,
    request: pytest.FixtureRequest,
    fixture: str,
    pooling: str | None,
    number: int,
) -> None:
    """Of tiny models, with every pooling."""
    path: Path = request.getfixturevalue(fixture)
    arguments = {} if pooling is None else {"pooling": pooling}
    found = ours(registry, path, **arguments)
    assert least_cosine(found, direct(path, pooling=number)) >= 0.9999


@pytest.mark.integration
def test_vectors_of_a_real_model_are_those_of_the_backends_own_class(
    registry: Registry, minilm: Path
) -> None:
    """MiniLM in half precision, blank texts too."""
    assert least_cosine(ours(registry, minilm), direct(minilm)) >= 0.9999


@pytest.mark.integration
def test_a_vector_of_a_real_model_does_not_depend_on_its_company(
    registry: Registry, minilm: Path
) -> None:
    """Half precision inside the model makes nothing of where a text lies in a batch."""
    import numpy as np

    alone = [ours(registry, minilm, text) for text in TEXTS]
    assert abs(ours(registry, minilm) - np.concatenate(alone)).max() < 1e-6


@pytest.mark.integration
def test_paraphrases_are_closer_than_unrelated_texts(registry: Registry, minilm: Path) -> None:
    """The vectors mean something."""
    texts = [
        "A man is playing a guitar on the street.",
        "Somebody makes music with a guitar outside.",
        "The central bank raised its interest rate.",
    ]
    found = ours(registry, minilm, texts)
    assert float(found[0] @ found[1]) > 0.6
    assert float(found[0] @ found[2]) < 0.2
