"""
Golden vectors: inputs of a pack, and the outputs that were right for them.

They are an artifact of the pack, which its descriptor names in ``attributes.golden``::

    {
      "schema_version": "1",
      "vectors": [
        {
          "id": "tea",
          "cap": "cap:generate-embeddings",
          "input": "A cup of tea.",
          "parameters": {"normalize": true},
          "field": "vectors",
          "compare": "cosine",
          "tolerance": 0.001,
          "expected": [[0.12, -0.03]]
        }
      ]
    }

``input_file`` and ``expected_file`` stand in for ``input`` and ``expected``: a file beside this
one, which the manifest lists. ``*.npy`` is an array; another input is given as its path.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.distances import MEASURES
from cartridge_core.errors import InvalidArgumentError, LoadError
from cartridge_core.jsondata import at, read_json, refusal, thaw
from cartridge_core.jsonfields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.pack import Pack

__all__ = ["Vector", "read_golden", "read_vectors"]

_KEYS = frozenset({"schema_version", "vectors"})
_VECTOR_KEYS = frozenset(
    {"id", "cap", "input", "input_file", "parameters", "field", "compare", "tolerance"}
    | {"expected", "expected_file"}
)

_MOST = 1e300
"""No tolerance is larger; what JSON calls an integer may be."""


@attrs.frozen
class Vector:
    """One input and the output that is right for it."""

    id: str
    cap: str | None = attrs.field(kw_only=True)
    """The request; None is the cartridge's first cap."""

    parameters: Mapping[str, object] = attrs.field(kw_only=True)
    """The session's arguments."""

    field: str | None = attrs.field(kw_only=True)
    """The field of the output's record that is compared; None compares the whole output."""

    compare: str = attrs.field(kw_only=True)
    """``max-abs``, ``cosine``, ``exact`` or ``wer``."""

    tolerance: float = attrs.field(kw_only=True)
    """The largest distance that passes."""

    has_expected: bool = attrs.field(kw_only=True)
    _input: object = attrs.field(kw_only=True, repr=False)
    _expected: object = attrs.field(kw_only=True, repr=False)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it takes its input and its output from."""
        return tuple(one for one in (self._input, self._expected) if isinstance(one, Path))

    def input(self) -> object:
        """
        Give the input: JSON data, an array, or a path.

        Raises:
            LoadError: A file cannot be read.
        """
        return _loaded(self._input)

    def expected(self) -> object:
        """
        Give the output that is right: JSON data, or an array.

        Raises:
            LoadError: A file cannot be read.
        """
        return _loaded(self._expected)


def read_golden(pack: Pack) -> tuple[Vector, ...]:
    """
    Read the golden vectors of a pack.

    Raises:
        LoadError: It has none, or they are malformed.
    """
    named = None if pack.descriptor is None else pack.descriptor.attributes.get("golden")
    if named is None:
        msg = (
            f"pack {pack.path}: it has no golden vectors, so there is nothing to check; make it "
            "with `cartridge pack new --golden`"
        )
        raise LoadError(msg)
    file = pack.root / str(named)
    files = {one.name: one for one in pack.files() if one.parent == file.parent}
    if files.get(file.name) != file:
        msg = f"pack {pack.path}: attributes.golden is {named!r}, and manifest.json lists no such"
        raise LoadError(msg)
    try:
        return read_vectors(file.read_bytes(), files)
    except (OSError, ValueError, InvalidArgumentError) as exc:
        msg = f"pack {pack.path}: {named}: {exc}"
        raise LoadError(msg) from exc


def read_vectors(data: bytes, files: Mapping[str, Path]) -> tuple[Vector, ...]:
    """
    Read golden vectors.

    Args:
        data: The JSON text.
        files: The files that they may name, by name.

    Raises:
        InvalidArgumentError: It breaks the form above.
    """
    fields = Fields(read_json(data, "$"), "$", _KEYS)
    fields.choice("schema_version", ("1",))
    items = fields.items("vectors")
    if not items:
        raise refusal(fields.at("vectors"), "must hold at least one")
    vectors: list[Vector] = []
    for item, where in items:
        vector = _read_vector(Fields(item, where, _VECTOR_KEYS), files)
        if any(vector.id == other.id for other in vectors):
            raise refusal(at(where, "id"), "stands here twice", vector.id)
        vectors.append(vector)
    return tuple(vectors)


def _read_vector(fields: Fields, files: Mapping[str, Path]) -> Vector:
    compare = fields.choice("compare", MEASURES)
    return Vector(
        fields.text("id"),
        cap=fields.optional(fields.text, "cap"),
        parameters=fields.mapping("parameters"),
        field=fields.optional(fields.text, "field"),
        compare=compare,
        tolerance=0.0 if compare == "exact" else _tolerance(fields),
        has_expected="expected" in fields.data or "expected_file" in fields.data,
        input=_source(fields, "input", files),
        expected=_source(fields, "expected", files, is_array=True),
    )


def _tolerance(fields: Fields) -> float:
    value = fields.value("tolerance")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return float(value)
    raise refusal(fields.at("tolerance"), "must be a number from 0", value)


def _source(
    fields: Fields, name: str, files: Mapping[str, Path], *, is_array: bool = False
) -> object:
    in_file = f"{name}_file"
    if in_file not in fields.data:
        return thaw(fields.data.get(name))
    if name in fields.data:
        raise refusal(fields.at(in_file), f"stands beside {name}; one of them is meant")
    named = fields.text(in_file)
    if named not in files:
        raise refusal(fields.at(in_file), "is no file beside this one that is listed", named)
    if is_array and not named.endswith(".npy"):
        raise refusal(fields.at(in_file), "must be an array, *.npy", named)
    return files[named]


def _loaded(source: object) -> object:
    if not isinstance(source, Path) or source.suffix != ".npy":
        return source
    import numpy as np

    try:
        return np.load(source, allow_pickle=False)
    except (OSError, ValueError) as exc:
        msg = f"golden vector {source}: it cannot be read as an array: {exc}"
        raise LoadError(msg) from exc
