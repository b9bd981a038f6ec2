"""A folder served by nginx on loopback, where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NGINX", "Nginx"]

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
"""The program; None where there is none."""

_SCRATCH = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_LONG_S = 20.0


class Nginx:
    """
    A server of a folder.

    Args:
        folder: What is served; nginx's own files come into ``.nginx`` in it.
        more: Directives for the server.
    """

    def __init__(self, folder: Path, more: str = "") -> None:
        assert NGINX is not None  # noqa: S101 -- the caller looked
        self._own = folder / ".nginx"
        self._own.mkdir(exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        scratch = "".join(f"{name}_temp_path {self._own}/{name};" for name in _SCRATCH)
        (self._own / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {self._own}/pid; error_log {self._own}/errors;\n"
            "events {}\n"
            f"http {{ {scratch} access_log {self._own}/asked; sendfile on; types {{}}\n"
            f"server {{ listen 127.0.0.1:{self._port}; root {folder}; {more} }} }}\n"
        )
        command = [NGINX, "-p", str(self._own), "-c", str(self._own / "nginx.conf")]
        self._process = subprocess.Popen(  # noqa: S603 -- found by its fixed name
            [*command, "-e", str(self._own / "errors")], stderr=subprocess.DEVNULL
        )
        self.url = f"http://127.0.0.1:{self._port}"
        self._wait()

    @property
    def asked(self) -> list[str]:
        """What was asked: request, status and bytes of each answer."""
        lines = (self._own / "asked").read_text().splitlines()
        return [line.partition('"')[2].rpartition(' "-"')[0] for line in lines]

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def _wait(self) -> None:
        until = time.monotonic() + _LONG_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        self.close()
        msg = f"nginx did not start: {(self._own / 'errors').read_text()}"
        raise RuntimeError(msg)
