"""Ed25519, through the package ``cryptography``; the only module that imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["matches", "read_private_key"]

_MAKE_ONE = "make one with `openssl genpkey -algorithm ed25519 -out key.pem`"


def matches(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """
    Say whether a signature is that of a message by a key.

    Args:
        public_key: 32 bytes.
        signature: 64 bytes.
        message: What was signed.

    Raises:
        ImportError: The package ``cryptography`` is missing.
    """
    # Deferred: an extra, and only a signed pack needs it.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 -- see above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 -- see above
        Ed25519PublicKey,
    )

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def read_private_key(file: Path) -> Ed25519PrivateKey:
    """
    Read a private key in PEM, as ``openssl genpkey -algorithm ed25519`` writes it.

    Raises:
        LoadError: It cannot be read, is encrypted, or is no Ed25519 key; or the package
            ``cryptography`` is missing.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 -- an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 -- an extra
            Ed25519PrivateKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 -- an extra
            load_pem_private_key,
        )
    except ImportError as exc:
        msg = (
            "signing needs the package cryptography, which cannot be imported "
            f'({exc}): `pip install "cartridge-core[sign]"`'
        )
        raise LoadError(msg) from exc
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except OSError as exc:
        msg = f"key {file} cannot be read: {exc.strerror or exc}"
        raise LoadError(msg) from exc
    except TypeError as exc:
        msg = f"key {file} is encrypted; take the passphrase off first: `openssl pkey -in {file}`"
        raise LoadError(msg) from exc
    except (ValueError, UnsupportedAlgorithm) as exc:
        msg = f"key {file} is no private key in PEM; {_MAKE_ONE}"
        raise LoadError(msg) from exc
    if not isinstance(key, Ed25519PrivateKey):
        msg = f"key {file} is no Ed25519 key, and manifests are signed with Ed25519; {_MAKE_ONE}"
        raise LoadError(msg)
    return key
