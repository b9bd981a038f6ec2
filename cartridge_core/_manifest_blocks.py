"""
The closed blocks of a manifest: its artifacts, the base it updates, its provenance.

Source: Cartridge ABI 0.1, manifest schema 2.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import attrs

from cartridge_core.jsondata import at, refusal
from cartridge_core.jsonfields import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core.signatures import Kind

__all__ = [
    "KINDS",
    "ROLES",
    "Base",
    "Evaluation",
    "ListedFile",
    "read_base",
    "read_digest",
    "read_evaluation",
    "read_files",
]

KINDS: tuple[Kind, ...] = ("cartridge", "weights-update")
ROLES = ("runtime", "model", "weights", "tokenizer", "calibration", "descriptor", "other")

_ARTIFACT_KEYS = frozenset(
    {"role", "path", "digest", "size", "license"}
    | {"derived_from", "encryption", "delivery", "component"}
)
_PROVENANCE_KEYS = frozenset(
    {"producer", "built_at", "inputs", "training", "evaluation", "blueprint", "materialization"}
)
_TRAINING_KEYS = frozenset({"round", "method", "participants_count", "dp_epsilon"})
_EVALUATION_KEYS = frozenset({"dataset_digest", "metric", "value", "baseline", "waiver"})
_TIMINGS = ("install-time", "fast-follow", "on-demand")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_PATH = 1024
_ROOT_FILES = ("descriptor.json", "manifest.json")

# What is measured by it is better where it is lower, or higher; of others nobody here knows.
_LOWER_IS_BETTER = frozenset({"wer", "cer", "loss", "perplexity", "mae", "mse", "rmse", "eer"})
_HIGHER_IS_BETTER = frozenset(
    {"accuracy", "precision", "recall", "f1", "auc", "map", "bleu", "rouge", "ndcg"}
    | {"pearson", "spearman"}
)


@attrs.frozen
class ListedFile:
    """One file that a manifest lists, and what it must be."""

    role: str
    path: str
    """Relative to the pack's root, ``/`` between plain names."""

    digest: str = attrs.field(kw_only=True)
    """``sha256:`` and 64 hex digits."""

    size: int = attrs.field(kw_only=True)
    """Bytes."""

    license: str = attrs.field(kw_only=True)
    """An SPDX expression, or a word such as ``proprietary``."""

    @classmethod
    def from_json(cls, value: object, where: str) -> ListedFile:
        """
        Read an artifact of a manifest.

        Raises:
            InvalidArgumentError: It breaks the manifest's schema, or its path is not safe.
        """
        fields = Fields(value, where, _ARTIFACT_KEYS)
        fields.optional(fields.text, "component")
        fields.optional(fields.block, "derived_from", _check_origin)
        fields.optional(fields.block, "encryption", _check_encryption)
        fields.optional(fields.block, "delivery", _check_delivery)
        return cls(
            fields.choice("role", ROLES),
            _read_path(fields),
            digest=read_digest(fields, "digest"),
            size=fields.integer("size", 0),
            license=fields.text("license"),
        )


@attrs.frozen
class Base:
    """The one thing that a weights update applies to."""

    kind: Kind
    id: str
    version: str
    digest: str = attrs.field(kw_only=True)
    """``sha256:`` and 64 hex digits, of that one's manifest as it was signed."""


@attrs.frozen
class Evaluation:
    """What was measured before an update was shipped."""

    metric: str
    value: float = attrs.field(kw_only=True)
    """With the new weights."""

    baseline: float = attrs.field(kw_only=True)
    """With those before, on the same data."""

    waiver: str | None = attrs.field(kw_only=True)
    """Why it ships though it is worse."""

    @property
    def is_worse(self) -> bool:
        """
        Whether the new weights are worse.

        Of a metric of which it is not known which way is better, every change counts as worse.
        """
        metric = self.metric.lower()
        if metric in _LOWER_IS_BETTER:
            return self.value > self.baseline
        if metric in _HIGHER_IS_BETTER:
            return self.value < self.baseline
        return self.value != self.baseline


def read_digest(fields: Fields, name: str) -> str:
    """Take a digest."""
    return fields.matching(name, _DIGEST, '"sha256:" and 64 lower-case hex digits')


def read_base(value: object, where: str) -> Base:
    """Read ``base``."""
    fields = Fields(value, where, frozenset({"kind", "id", "version", "digest"}))
    return Base(
        fields.choice("kind", KINDS),
        fields.text("id"),
        fields.text("version"),
        digest=read_digest(fields, "digest"),
    )


def read_evaluation(value: object, where: str) -> Evaluation | None:
    """Check ``provenance``, and give its evaluation, where it has one."""
    fields = Fields(value, where, _PROVENANCE_KEYS)
    for name in ("producer", "built_at"):
        fields.optional(fields.prose, name)
    for name in ("blueprint", "materialization"):
        fields.mapping(name)
    for item, place in fields.items("inputs"):
        source = Fields(item, place, frozenset({"name", "digest"}))
        source.prose("name")
        read_digest(source, "digest")
    fields.optional(fields.block, "training", _check_training)
    return fields.optional(fields.block, "evaluation", _read_evaluation)


def _read_evaluation(value: object, where: str) -> Evaluation:
    fields = Fields(value, where, _EVALUATION_KEYS)
    read_digest(fields, "dataset_digest")
    return Evaluation(
        fields.text("metric"),
        value=_real(fields, "value"),
        baseline=_real(fields, "baseline"),
        waiver=fields.optional(fields.text, "waiver"),
    )


def _real(fields: Fields, name: str) -> float:
    value = fields.value(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise fields.refusal(name, "must be a number")


def _check_training(value: object, where: str) -> None:
    fields = Fields(value, where, _TRAINING_KEYS)
    fields.optional(fields.prose, "method")
    fields.optional(fields.number, "dp_epsilon")
    for name in ("round", "participants_count"):
        fields.optional(fields.integer, name, 0)


def _check_origin(value: object, where: str) -> None:
    fields = Fields(value, where, frozenset({"source", "license"}))
    for name in fields.data:
        fields.prose(name)


def _check_encryption(value: object, where: str) -> None:
    fields = Fields(value, where, frozenset({"alg", "key_ref"}))
    fields.prose("alg")
    fields.prose("key_ref")


def _check_delivery(value: object, where: str) -> None:
    fields = Fields(value, where, frozenset({"timing", "group"}))
    fields.choice("timing", _TIMINGS)
    fields.optional(fields.prose, "group")


def _read_path(fields: Fields) -> str:
    path = fields.text("path")
    names = path.split("/")
    if set(path) & set("\\\0") or any(not name or name.startswith(".") for name in names):
        rule = (
            'must be a path below the pack\'s folder: "/" between names, no "\\", no name that is '
            "empty or starts with a dot"
        )
        raise refusal(fields.at("path"), rule, path)
    if len(path) > _LONGEST_PATH:
        raise refusal(fields.at("path"), f"must have at most {_LONGEST_PATH} characters", path)
    if path == "manifest.json":
        raise refusal(fields.at("path"), "the manifest cannot list itself", path)
    return path


def read_files(fields: Fields) -> tuple[ListedFile, ...]:
    """Take ``artifacts``: at least one, and no two that are one file where case does not count."""
    fields.value("artifacts")
    items = fields.items("artifacts")
    if not items:
        raise refusal(fields.at("artifacts"), "must list at least one file")
    files = tuple(ListedFile.from_json(item, where) for item, where in items)
    _check_spelling(files, fields.at("artifacts"))
    return files


def _check_spelling(files: Iterable[ListedFile], where: str) -> None:
    """Check that no two paths, nor the folders they lie in, are one on some file system."""
    seen: set[str] = set()
    spelt = {name: name for name in _ROOT_FILES}  # both are lower-case
    for index, path in enumerate(file.path for file in files):
        place = at(at(where, index), "path")
        if path in seen:
            raise refusal(place, "stands here twice", path)
        seen.add(path)
        names = path.split("/")
        for part in ("/".join(names[: count + 1]) for count in range(len(names))):
            other = spelt.setdefault(_caseless(part), part)
            if other != part:
                in_what = "case" if other.casefold() == part.casefold() else "its encoding"
                raise refusal(place, f'differs only in {in_what} from "{other}"', part)


def _caseless(text: str) -> str:
    """
    Give what is equal for names that a file system may take for one.

    Source: The Unicode Standard 3.13, D145 (canonical caseless matching).
    """
    folded = unicodedata.normalize("NFD", text).casefold()
    return unicodedata.normalize("NFD", folded)
