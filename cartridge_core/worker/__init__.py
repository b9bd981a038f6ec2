"""
Cartridges in a process of their own.

`client.Worker` is the host's side, ``python -m cartridge_core.worker`` the process.
"""
