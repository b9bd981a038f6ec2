"""Stop an install that would bring GPU libraries onto a machine without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

GPU_PREFIXES = ("nvidia-", "cuda-", "triton")
HINT = """\
{torch} would bring GPU libraries ({names}), and this machine has no NVIDIA GPU.
Get the CPU build once, then run make again:

    .venv/bin/pip install {torch} --index-url <the CPU index that pytorch.org's "Get Started" names>

To take the GPU build all the same: .venv/bin/pip install {torch}
"""


def main() -> int:
    """Read pip's installation report from stdin; give the exit status."""
    text = sys.stdin.read()
    if not text.strip():
        return 1  # pip failed, and said why
    report = json.loads(text)
    names = [item["metadata"]["name"].lower() for item in report["install"]]
    found = sorted(name for name in names if name.startswith(GPU_PREFIXES))
    if not found or Path("/dev/nvidiactl").exists():
        return 0
    torch = next(
        f"torch=={item['metadata']['version'].partition('+')[0]}"
        for item in report["install"]
        if item["metadata"]["name"] == "torch"
    )
    sys.stderr.write(HINT.format(torch=torch, names=", ".join(found)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
