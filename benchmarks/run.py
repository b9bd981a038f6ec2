"""Measure what the project promises: `make bench`."""

from __future__ import annotations

import sys
from pathlib import Path

# In place of this folder, whose module names are nobody's top-level names.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.command import main  # noqa: E402 -- found by the line above

if __name__ == "__main__":
    sys.exit(main())
