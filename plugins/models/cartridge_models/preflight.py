"""What a model needs before it can be fetched, answered without importing anything heavy."""

from __future__ import annotations

from importlib import metadata

from cartridge_core.reports import Check, PreflightReport

__all__ = ["preflight"]


def preflight() -> PreflightReport:
    """
    Check that the hub's library is there.

    pip is not asked for: only a wheel that is neither installed nor cached needs it.
    """
    try:
        found = metadata.version("huggingface_hub")
    except metadata.PackageNotFoundError:
        found = ""
    check = Check(
        "hub library",
        ok=bool(found),
        required="huggingface_hub",
        found=found or "not installed",
        fix="pip install huggingface_hub",
    )
    return PreflightReport((check,), memory_bytes=0)
