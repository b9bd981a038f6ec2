"""Why something is no picture that can be read."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(Exception):  # noqa: N818 -- it never leaves the package
    """
    The end of a sentence whose subject is the picture: ``is empty; give a picture``.

    `cartridge_media.images.read_image` knows the subject, and makes an ``InvalidArgumentError``.
    """
