"""API keys: ``eruca_<id>_<secret>``, recognised by the id and proved by the secret.

The secret is 256 random bits. So nobody can guess it from its digest, and one SHA-256 is enough to
store it: slow hashes are for passwords. The fixed beginning is for scanners of leaked secrets.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final, NamedTuple

SECRET_SIZE: Final = 32  # bytes
_KEY: Final = re.compile(r"eruca_([a-z0-9]{4,32})_([A-Za-z0-9_-]{43})\Z")
_ID_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
ID_SIZE: Final = 10  # characters of a new id


class PresentedKey(NamedTuple):
    """A well-formed key, of which nothing is known yet."""

    id: str
    digest: bytes  # SHA-256 of the whole key


def new_key(random_id: bytes, random_secret: bytes) -> str:
    """Return a key made of random bytes.

    Args:
        random_id: At least :data:`ID_SIZE` bytes.
        random_secret: :data:`SECRET_SIZE` bytes, from the system's generator.
    """
    assert len(random_id) >= ID_SIZE
    assert len(random_secret) == SECRET_SIZE
    key_id = "".join(_ID_ALPHABET[byte % len(_ID_ALPHABET)] for byte in random_id[:ID_SIZE])
    secret = base64.urlsafe_b64encode(random_secret).rstrip(b"=").decode()
    return f"eruca_{key_id}_{secret}"


def presented_key(text: str) -> PresentedKey | None:
    """Parse a key; None if it is none."""
    match = _KEY.match(text)
    return None if match is None else PresentedKey(match[1], hashlib.sha256(text.encode()).digest())


def proves(presented: PresentedKey, stored_sha256: str) -> bool:
    """Return whether the key is the stored one; takes the same time for every wrong key."""
    return hmac.compare_digest(presented.digest, bytes.fromhex(stored_sha256))
