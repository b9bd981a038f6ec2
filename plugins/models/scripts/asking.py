"""
Ask one of the cartridge's caps in a process of its own, as tests do.

    python asking.py download-model SPEC [most bytes a file may have]

Prints the record, or the error's class and text, as JSON.
"""

from __future__ import annotations

import json
import resource
import sys

from cartridge_core.context import Context
from cartridge_core.errors import CartridgeError
from cartridge_models import plugin
from cartridge_models.remote import Patience
from cartridge_models.store import Store

_HASTE = Patience(stall_s=20.0, pause_s=0.05, lock_s=60.0)


def main(marker: str, spec: str, most_bytes: str = "") -> int:
    """Ask."""
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most_bytes), int(most_bytes)))
    (descriptor,) = plugin.cartridge_descriptors()
    cap = next(str(cap.urn) for cap in descriptor.caps if marker in cap.aliases)
    session = plugin.cartridge_session_begin(Store(_HASTE), cap, {}, Context())
    try:
        print(json.dumps(plugin.cartridge_infer(session, spec).payload))
    except CartridgeError as exc:
        print(json.dumps({"error": type(exc).__name__, "text": str(exc)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
