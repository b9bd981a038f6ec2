"""How far an output is from what was expected."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MEASURES", "MismatchError", "as_plain", "distance", "word_error_rate"]

MEASURES = ("max-abs", "cosine", "exact", "wer")

_WORD = re.compile(r"\w+(?:'\w+)*")


class MismatchError(Exception):
    """An output has another form than what was expected, so that no distance can be told."""


def distance(measure: str, expected: object, observed: object) -> float:
    """
    Measure how far an output is from what was expected; 0 is no difference.

    ========= =====================================================================
    max-abs   the largest absolute difference of two numbers in the same place
    cosine    1 minus the cosine of two vectors; of several rows the largest of those
    exact     0 for equal JSON values, 1 for others
    wer       `word_error_rate` of two texts
    ========= =====================================================================

    Args:
        measure: One of these words.
        expected: Plain JSON data, or an array.
        observed: What a cartridge gave.

    Raises:
        MismatchError: It has another shape, or is no array of numbers, or no text.
    """
    if measure == "exact":
        return 0.0 if _is_same(as_plain(expected), as_plain(observed)) else 1.0
    if measure == "wer":
        return word_error_rate(_text(expected, "expected"), _text(observed, "observed"))
    wanted, found = _array(expected, "expected"), _array(observed, "observed")
    if wanted.shape != found.shape:
        msg = f"shape {wanted.shape} is expected, and {found.shape} was given"
        raise MismatchError(msg)
    if not wanted.size:
        msg = "an empty array is expected, which shows nothing"
        raise MismatchError(msg)
    return _max_abs(wanted, found) if measure == "max-abs" else _cosine(wanted, found)


def word_error_rate(expected: str, observed: str) -> float:
    """
    Give the word error rate.

    That is the least number of words to replace, leave out or put in that makes the expected text
    of the observed one, over the number of words expected. Words are runs of letters, digits and
    underscores, with apostrophes inside them; case does not count, nor does what stands between.
    Where no word is expected, every observed word counts as a whole error.

    Source:
        The usual definition, (S + D + I) / N, over a normalisation of our own.
    """
    wanted, found = _words(expected), _words(observed)
    return _edits(wanted, found) / max(1, len(wanted))


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return _WORD.findall(folded)


def _edits(wanted: Sequence[str], found: Sequence[str]) -> int:
    """Give Levenshtein's distance, over words."""
    before = list(range(len(found) + 1))
    for row, word in enumerate(wanted, start=1):
        now = [row]
        for column, other in enumerate(found, start=1):
            change = before[column - 1] + (word != other)
            now.append(min(before[column] + 1, now[-1] + 1, change))
        before = now
    return before[-1]


def as_plain(value: object) -> object:
    """Copy what a cartridge gave into plain JSON data; arrays become nested lists."""
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else value


def _is_same(one: object, other: object) -> bool:
    """Compare JSON values: 1 is 1.0, and true is no number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _text(value: object, which: str) -> str:
    if isinstance(value, str):
        return value
    msg = f"the {which} output is a {type(value).__name__}, and texts are compared"
    raise MismatchError(msg)


def _array(value: object, which: str) -> NDArray[np.float64]:
    import numpy as np

    try:
        return np.asarray(as_plain(value), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as exc:
        msg = f"the {which} output is no array of numbers: {exc}"
        raise MismatchError(msg) from exc


def _max_abs(wanted: NDArray[np.float64], found: NDArray[np.float64]) -> float:
    import numpy as np

    with np.errstate(all="ignore"):
        return float(np.max(np.abs(wanted - found)))


def _cosine(wanted: NDArray[np.float64], found: NDArray[np.float64]) -> float:
    import numpy as np

    rows, others = np.atleast_2d(wanted), np.atleast_2d(found)
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(rows, axis=-1) * np.linalg.norm(others, axis=-1)
        cosines = np.sum(rows * others, axis=-1) / lengths
    worst = float(np.min(cosines))  # not a number where one of them is, or a vector is zero
    return math.nan if math.isnan(worst) else max(0.0, 1.0 - worst)
