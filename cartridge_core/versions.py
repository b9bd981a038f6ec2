"""
Semantic versions, and which of two is the newer.

Source: Semantic Versioning 2.0.0, 9 to 11.
"""

from __future__ import annotations

import re

__all__ = ["SEMVER", "precedence"]

SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][\da-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][\da-zA-Z-]*))*)?"
    r"(\+[\da-zA-Z-]+(\.[\da-zA-Z-]+)*)?",
    re.ASCII,
)
"""What is wholly of this is a semantic version."""


def precedence(version: str) -> tuple[object, ...]:
    """
    Give what orders a version among others.

    1.2.0-rc.1 comes before 1.2.0, and what follows a plus does not count.

    Args:
        version: A semantic version.
    """
    release, hyphen, prerelease = version.partition("+")[0].partition("-")
    numbers = tuple(_number(part) for part in release.split("."))
    return (numbers, not hyphen, tuple(_identifier(part) for part in prerelease.split(".")))


def _number(text: str) -> tuple[int, str]:
    # No int(): a number may have more digits than that reads.
    return (len(text), text)


def _identifier(text: str) -> tuple[object, ...]:
    return (0, *_number(text)) if text.isdecimal() else (1, text)
