"""RECORD is read strictly, and files are held against it."""

from __future__ import annotations

import base64
import hashlib
import io

import pytest

from cartridge_core.errors import CancelledError, VerificationError
from cartridge_models.record import Recorded, copy_checked, read_record


def recorded(data: bytes) -> Recorded:
    digest = hashlib.sha256(data).digest()
    return Recorded("m.bin", algorithm="sha256", digest=digest, size_bytes=len(data))


def encode(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param("m.bin", id="one-column"),
        pytest.param(",,", id="no-path"),
        pytest.param("m.bin,md5=aaaa,1", id="weak-digest"),
        pytest.param("m.bin,sha256=,1", id="empty-digest"),
        pytest.param("m.bin,sha256=!!,1", id="no-base64"),
        pytest.param("m.bin,sha256=aaaa,", id="no-size"),
        pytest.param("m.bin,sha256=aaaa,-1", id="negative-size"),
        pytest.param("m.bin,,\nm.bin,,", id="path-twice"),
    ],
)
def test_error_malformed_row(row: str) -> None:
    """A row that proves nothing is a verification error that names the wheel."""
    with pytest.raises(VerificationError, match="tiny: RECORD"):
        read_record(row, "tiny")


def test_rows_are_read_by_path() -> None:
    """Digests and sizes are read; a file without a digest is None; names may be quoted."""
    digest = hashlib.sha256(b"x").digest()
    text = f'"a,b",sha256={encode(digest)},1\nt.dist-info/RECORD,,\n'
    assert read_record(text, "tiny") == {
        "a,b": Recorded("a,b", algorithm="sha256", digest=digest, size_bytes=1),
        "t.dist-info/RECORD": None,
    }


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"model.", id="longer"),
        pytest.param(b"mode", id="shorter"),
        pytest.param(b"m0del", id="other"),
    ],
)
def test_error_file_that_is_not_the_recorded_one(data: bytes) -> None:
    """A file of another length or content is a verification error that names it."""
    with pytest.raises(VerificationError, match=r"tiny: m\.bin is not the file that RECORD lists"):
        copy_checked(
            io.BytesIO(data), None, recorded(b"model"), where="tiny", on_bytes=lambda _: None
        )


def test_file_is_copied_no_further_than_its_recorded_size() -> None:
    """A member that unpacks to more than it says fills no disk."""
    copy = io.BytesIO()
    with pytest.raises(VerificationError):
        copy_checked(
            io.BytesIO(b"x" * (3 << 20)),
            copy,
            recorded(b"x" * (1 << 20)),
            where="tiny",
            on_bytes=lambda _: None,
        )
    assert len(copy.getvalue()) == 1 << 20


def test_copy_stops_between_chunks() -> None:
    """What is told of the bytes may stop the copy."""

    def stop(count: int) -> None:
        msg = f"stopped after {count} bytes"
        raise CancelledError(msg)

    with pytest.raises(CancelledError, match="after 1048576 bytes"):
        copy_checked(
            io.BytesIO(b"x" * (2 << 20)),
            None,
            recorded(b"x" * (2 << 20)),
            where="tiny",
            on_bytes=stop,
        )
