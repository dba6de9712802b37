"""Sign requests to webhooks, so that a receiver can verify their sender and their age.

A request carries an id, a time and a signature::

    webhook-id          the check's id: the same at every attempt
    webhook-timestamp   whole seconds since the epoch, of this attempt
    webhook-signature   "v1," + base64(HMAC-SHA256(key, "<id>.<timestamp>.<body>"))

The key is the secret's bytes. For a secret ``whsec_<base64>`` it is the decoded base64.

Source: Standard Webhooks 1.0.0.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final

from eruca.contract.transactions import (
    WEBHOOK_ID_HEADER,
    WEBHOOK_SIGNATURE_HEADER,
    WEBHOOK_SIGNATURE_VERSION,
    WEBHOOK_TIMESTAMP_HEADER,
)

SECRET_PREFIX: Final = "whsec_"
SECRET_SIZE: Final = 32  # bytes of a generated secret


def secret_of(random: bytes) -> str:
    """Encode *random* bytes as a secret."""
    assert len(random) == SECRET_SIZE
    return SECRET_PREFIX + b64encode(random).decode()


def signed_headers(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that authenticate *body*."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return {
        WEBHOOK_ID_HEADER: message_id,
        WEBHOOK_TIMESTAMP_HEADER: str(timestamp),
        WEBHOOK_SIGNATURE_HEADER: f"{WEBHOOK_SIGNATURE_VERSION},{b64encode(digest).decode()}",
    }


def _key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except ValueError:  # binascii.Error, or a character beyond ASCII
            pass  # a secret chosen by the user that happens to have the prefix
    return secret.encode()
