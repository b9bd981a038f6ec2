"""Releases that are installed in this Python, as importlib.metadata finds them."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cartridge_models.record import RECORD, read_record
from cartridge_models.release import Release

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_core.modelspec import PackageSpec

__all__ = ["find_installed"]


def find_installed(spec: PackageSpec, context: Context) -> Release | None:
    """
    Find the installed distribution of exactly this version.

    One whose metadata cannot be read counts as not installed, with a warning.
    """
    try:
        return _read(spec)
    except Exception as exc:  # noqa: BLE001 -- importlib.metadata lets through whatever it meets
        reason = f"{type(exc).__name__}: {exc}"
        context.log(
            "warning",
            f"model {spec}: the metadata of the installed {spec.name} cannot be read, so that it "
            f"counts as not installed ({reason:.200})",
        )
        return None


def _read(spec: PackageSpec) -> Release | None:
    try:
        distribution = metadata.distribution(spec.name)
    except metadata.PackageNotFoundError:
        return None
    if "Version" not in distribution.metadata:
        msg = "it gives no version"
        raise ValueError(msg)
    text = distribution.read_text("RECORD")
    # An editable install lists only what points at its sources.
    if distribution.version != spec.version or text is None or _is_editable(distribution):
        return None
    where = f"{spec.name} {spec.version}"
    listed = read_record(text, where)
    listed = {path: entry for path, entry in listed.items() if not RECORD.fullmatch(path)}
    return Release(Path(str(distribution.locate_file(""))), listed, where=where)


def _is_editable(distribution: metadata.Distribution) -> bool:
    try:
        origin: object = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    info = origin.get("dir_info") if isinstance(origin, dict) else None
    return isinstance(info, dict) and bool(info.get("editable"))
