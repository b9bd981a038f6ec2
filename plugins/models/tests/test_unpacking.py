"""Wheels made to break an unpacker: each is refused by name, with the member."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import VerificationError
from cartridge_models import unpacking
from cartridge_models.unpacking import unpack_wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Every byte value, so that no decompressor takes what is written over it for its own.
DATA = bytes(range(256)) * 400


def make(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    rows = []
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            rows.append(f"{name},sha256={digest.decode()},{len(data)}\n")
        archive.writestr("evil-1.0.dist-info/RECORD", "".join(rows))


def damage_data(method: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        make(path, {"m/x.bin": DATA}, method)
        data = bytearray(path.read_bytes())
        data[60:160] = b"\xff" * 100
        path.write_bytes(data)

    return write


def encrypt(path: Path) -> None:
    make(path, {"m/x.bin": DATA})
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(mark) + offset] |= 1
    path.write_bytes(data)


def point_outside(path: Path) -> None:
    make(path, {"m/x.bin": DATA})
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02") + 42
    data[at : at + 4] = struct.pack("<I", 0x7FFFFFFF)
    path.write_bytes(data)


def claim_more(path: Path) -> None:
    make(path, {"m/x.bin": DATA}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02") + 20
    data[at : at + 8] = struct.pack("<II", 0x7FFFFFF0, 0x7FFFFFF0)
    path.write_bytes(data)


def members(*names: str) -> Callable[[Path], None]:
    return lambda path: make(path, dict.fromkeys(names, b"1"))


UNREADABLE = "the member 'm/x.bin' cannot be unpacked: "


@pytest.mark.parametrize(
    ("write", "message"),
    [
        pytest.param(damage_data(zipfile.ZIP_DEFLATED), UNREADABLE, id="deflate"),
        pytest.param(damage_data(zipfile.ZIP_BZIP2), UNREADABLE, id="bzip2"),
        pytest.param(damage_data(zipfile.ZIP_LZMA), UNREADABLE, id="lzma"),
        pytest.param(encrypt, UNREADABLE + ".*encrypted", id="encrypted"),
        pytest.param(point_outside, UNREADABLE, id="offset-outside"),
        pytest.param(claim_more, UNREADABLE, id="ends-too-early"),
        pytest.param(members("a" * 300), "the member 'a{50}.*too long", id="long-name"),
        pytest.param(members("a/" * 3000 + "a"), "the member 'a/a/.*too long", id="long-path"),
        pytest.param(members("m", "m/x"), "the member 'm/x' cannot", id="file-and-folder"),
    ],
)
def test_error_evil_wheel(tmp_path: Path, write: Callable[[Path], None], message: str) -> None:
    """Whatever a member's bytes or name cause is a verification error with wheel and member."""
    wheel = tmp_path / "evil-1.0-py3-none-any.whl"
    write(wheel)
    with pytest.raises(VerificationError, match=rf"evil-1\.0-py3-none-any\.whl: {message}"):
        unpack_wheel(wheel, tmp_path / "out", lambda done, total: None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"m/x," + b"a" * 200_000 + b",1\n", "RECORD is malformed", id="huge-field"),
        pytest.param(b"\xff", "RECORD' cannot be read: 'utf-8'", id="not-utf-8"),
    ],
)
def test_error_evil_record(tmp_path: Path, text: bytes, message: str) -> None:
    """A RECORD that is no table of texts is a verification error that names the wheel."""
    wheel = tmp_path / "evil.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("evil-1.0.dist-info/RECORD", text)
    with pytest.raises(VerificationError, match=rf"evil\.whl: .*{message}"):
        unpack_wheel(wheel, tmp_path / "out", lambda done, total: None)


def test_error_record_that_would_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RECORD that claims more bytes than any has is not read at all."""
    monkeypatch.setattr(unpacking, "_RECORD_LIMIT_BYTES", 10)
    wheel = tmp_path / "evil.whl"
    make(wheel, {"m/x.bin": DATA})
    with pytest.raises(VerificationError, match=r"evil\.whl: the member '.*RECORD' claims"):
        unpack_wheel(wheel, tmp_path / "out", lambda done, total: None)
