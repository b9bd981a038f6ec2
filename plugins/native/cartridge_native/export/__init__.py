"""
Exports an installed cartridge as a shared library that any host in C can load.

`export_library` describes, builds and packs. Inside the library, `served` is what its C calls.
"""

from cartridge_native.export.exporting import export_library

__all__ = ["export_library"]
