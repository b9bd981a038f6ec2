"""Measure what the project promises: `make bench`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# In place of this folder, whose module names are nobody's top-level names.
_SCRIPTS = [str(ROOT / "plugins" / plugin / "scripts") for plugin in ("gguf", "models", "native")]
sys.path[:1] = [str(ROOT), *_SCRIPTS]

from benchmarks.command import main  # noqa: E402 -- found by the lines above

if __name__ == "__main__":
    sys.exit(main())
