"""Why something is no picture, or no sound, that can be read."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cartridge_core.errors import InvalidArgumentError, LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Refused", "named"]


class Refused(Exception):  # noqa: N818 -- it never leaves the package
    """
    The end of a sentence whose subject is what was given: ``is empty; give a whole file``.

    `named` knows the subject, and makes an ``InvalidArgumentError``.
    """


@contextmanager
def named(arg: str, value: object, *, rule: str, what: str, extra: str) -> Iterator[None]:
    """
    Make what is refused the error that a caller meets.

    Args:
        arg: What messages call it.
        value: What was given.
        rule: What may be given.
        what: What it is many of: ``pictures``.
        extra: What has to be installed to read them.

    Raises:
        InvalidArgumentError: It was refused.

        LoadError: A library is not installed.
    """
    try:
        yield
    except Refused as exc:
        msg = f"{arg}: {_subject(value)} {exc}"
        path = value if isinstance(value, str | os.PathLike) else None
        raise InvalidArgumentError(msg, arg=arg, value=path, rule=rule) from exc.__cause__
    except ImportError as exc:
        msg = f'{arg}: {what} cannot be read ({exc}); pip install "cartridge-media[{extra}]"'
        raise LoadError(msg) from exc


def _subject(value: object) -> str:
    if isinstance(value, str | os.PathLike):
        text = os.fsdecode(value)
        return repr(text if len(text) <= 100 else f"{text[:100]}...")
    if isinstance(value, bytes | bytearray | memoryview):
        return f"the content of {memoryview(value).nbytes:,} bytes"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"the {type(value).__name__} of shape {tuple(shape)} and dtype {dtype}"
    return f"the {type(value).__name__}"
