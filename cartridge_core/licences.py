"""
Licences of a pack: each file has one, and the whole says what they come to.

Source: Cartridge ABI 0.1, "The effective license must fulfill every upstream license".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cartridge_core.errors import VerificationError

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.manifest import Manifest

__all__ = ["check_licences", "says_nothing"]

_UNKNOWN = "NOASSERTION"
_WORD = re.compile(r"[\w.+-]+")


def says_nothing(license_: str) -> bool:
    """Say whether a licence, or a part of its expression, is ``NOASSERTION`` or blank."""
    words = [word.upper() for word in _WORD.findall(license_)]
    return not words or _UNKNOWN in words


def check_licences(folder: Path, manifest: Manifest, descriptor: Descriptor | None) -> None:
    """
    Check that every licence of a pack says something, and that the whole has one.

    Whether the licences allow what is done with the pack is a question for people.

    Args:
        folder: The pack's, for errors.
        manifest: Its manifest.
        descriptor: Its descriptor; None for a weights update without one.

    Raises:
        VerificationError: One does not.
    """
    stated = [(f"artifact {file.path!r}", file.license) for file in manifest.files]
    if manifest.effective_license is not None:
        stated.append(("effective_license", manifest.effective_license))
    if descriptor is not None:
        stated.append(("the descriptor's license", descriptor.license))
    for what, license_ in stated:
        if says_nothing(license_):
            msg = (
                f"pack {folder}: {what} is {license_!r}, which says nothing; find out the licence "
                "and state it"
            )
            raise VerificationError(msg)
    effective = manifest.effective_license
    if descriptor is not None and effective not in {None, descriptor.license}:
        msg = (
            f"pack {folder}: effective_license is {effective!r}, and the descriptor's license is "
            f"{descriptor.license!r}; they are one"
        )
        raise VerificationError(msg)
