"""The pictures of a call, each with its name, read one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.images import read_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from PIL.Image import Image

    from cartridge_core.context import Context

__all__ = ["Given", "read_given", "read_pictures"]

_MOST_OBLONG = 500
"""How many times its shorter side the longer one may be: with the shorter one at the model's 224
pixels, such a picture has 25 million of them before the middle is cut out."""


@attrs.frozen
class Given:
    """A picture as the caller gave it: a path, the bytes of a file, or an array."""

    value: object
    arg: str
    """What messages call it."""


def read_given(value: object) -> list[Given]:
    """Take a picture, or a list of pictures; in a list each is named by its index."""
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Sequence):
        return [Given(value, "image")]
    return [Given(item, f"image[{index}]") for index, item in enumerate(value)]


def read_pictures(items: Iterable[Given], context: Context) -> Iterator[Image]:
    """
    Read pictures, one after another.

    Args:
        items: The pictures.
        context: Says whether to go on.

    Returns:
        Each upright, of mode RGB.

    Raises:
        InvalidArgumentError: One is no picture that can be read, or is too oblong.

        CancelledError: The context was cancelled.
    """
    for item in items:
        context.check_cancelled()
        picture = read_image(item.value, arg=item.arg)
        _check_oblong(picture, item.arg)
        yield picture


def _check_oblong(picture: Image, arg: str) -> None:
    """Refuse what takes gigabytes once its shorter side is as long as the model's."""
    if max(picture.size) > _MOST_OBLONG * min(picture.size):
        width, height = picture.size
        rule = f"at most {_MOST_OBLONG} times as long as it is wide"
        msg = f"{arg}: it is {width} x {height} pixels, and must be {rule}; cut a part out of it"
        raise InvalidArgumentError(msg, arg=arg, value=picture.size, rule=rule)
