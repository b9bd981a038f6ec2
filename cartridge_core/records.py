"""`Record`: a dict as the caller gets it, immutable and with attribute access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

__all__ = ["Record", "as_records"]


class Record(Mapping[str, object]):
    """
    An immutable mapping whose keys are attributes too.

    Nested dicts are records, also those inside lists. A key that is no identifier, or that
    has the name of a method (``items``), is reached with ``record["items"]``.

    Example:
        >>> record = Record({"text": "hi", "segments": [{"start_s": 0.0}]})
        >>> record.text, record.segments[0].start_s
        ('hi', 0.0)
    """

    __slots__ = ("_data",)
    _data: dict[str, object]

    def __init__(self, data: Mapping[str, object]) -> None:
        converted = {
            key: value if type(value) in _AS_THEY_ARE else as_records(value)
            for key, value in data.items()
        }
        object.__setattr__(self, "_data", converted)

    def __getitem__(self, key: str) -> object:
        return self._data[key]

    def __getattr__(self, name: str) -> object:
        if not name.startswith("__"):
            try:
                return self._data[name]
            except KeyError:
                pass
        msg = f"record has no field {name!r}; it has {', '.join(self._data) or 'no fields'}"
        raise AttributeError(msg)

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"a record is immutable: {name!r} cannot be set"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        msg = f"a record is immutable: {name!r} cannot be deleted"
        raise AttributeError(msg)

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __reduce__(self) -> tuple[type[Record], tuple[dict[str, object]]]:
        return (Record, (self._data,))

    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in self._data.items())
        return f"Record({fields})"


def as_records(value: object) -> object:
    """Turn every dict inside a plain value into a `Record`; other values come back as they are."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is dict or isinstance(value, Mapping):
        return Record(cast("Mapping[str, object]", value))
    if isinstance(value, list):
        return [as_records(item) for item in value]
    return value


_AS_THEY_ARE = frozenset({str, int, float, bool, bytes, type(None), Record})
"""What has no dict inside that is to become a record; most values are one of these."""
