"""Idempotency keys, and their form in the header.

A key becomes a message's unique id, so it has only visible ASCII characters and no blank. In the
header it is a string of RFC 9651, in quotation marks (``"order-17"``). A key of plain characters
may come without them, as people write it for curl.

Source: draft-ietf-httpapi-idempotency-key-header-07, section 2.1, which never became an RFC; RFC
9651, section 3.3.3.
"""

from __future__ import annotations

import re
from typing import Final

from eruca.contract.errors import ValidationError
from eruca.contract.limits import IDEMPOTENCY_KEY_SIZE_MAX

HEADER: Final = "idempotency-key"
REPLAYED_HEADER: Final = "idempotent-replayed"

_VISIBLE: Final = re.compile(r"[!-~]+")
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE: Final = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~:/=@]+")
_ESCAPED: Final = re.compile(r'\\(["\\])')
_POINTER: Final = "/header/idempotency-key"
_FIX: Final = 'use a value such as Idempotency-Key: "order-17"'


def checked_key(key: str) -> str:
    """Return *key* if it is valid.

    Raises:
        ValidationError: It is empty, too long, only dots, or has a character that is not visible
            ASCII.
    """
    if len(key) > IDEMPOTENCY_KEY_SIZE_MAX:
        raise ValidationError.at(
            _POINTER,
            f"expected at most {IDEMPOTENCY_KEY_SIZE_MAX} characters, found {len(key)}",
            fix="use a shorter key, such as a UUID",
        )
    if not _VISIBLE.fullmatch(key):
        raise ValidationError.at(
            _POINTER, "expected at least one character, and only visible ASCII ones", fix=_FIX
        )
    if not key.strip("."):  # in a URL's path it would mean another path
        raise ValidationError.at(
            _POINTER, "expected more than dots, because the key becomes a message's id", fix=_FIX
        )
    return key


def encode_key(key: str) -> str:
    """Return the header's value for *key*; raises as :func:`checked_key`."""
    escaped = checked_key(key).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def decode_key(value: str) -> str:
    """Return the key in a header's value.

    Raises:
        ValidationError: The value is neither a string nor a plain word, or its key is invalid.
    """
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        return checked_key(_ESCAPED.sub(r"\1", quoted[1]))
    if not _BARE.fullmatch(value):
        raise ValidationError.at(
            _POINTER, "expected one string in quotation marks, or one plain word", fix=_FIX
        )
    return checked_key(value)
