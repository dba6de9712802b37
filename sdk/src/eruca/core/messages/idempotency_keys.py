"""Idempotency keys: how the name that a client gives to a send stands in the header's value.

A key is a message's unique id to be, so it holds visible ASCII characters and no blank. It stands
in quotation marks, as a string of RFC 9651 (``"order-17"``); one of plain characters may stand
without them, as people write it for curl.

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
_FIX: Final = 'such as Idempotency-Key: "order-17"'


def checked_key(key: str) -> str:
    """Return *key* if it can be one.

    Raises:
        ValidationError: It is empty, too long, dots alone, or holds something that is no visible
            ASCII.
    """
    if len(key) > IDEMPOTENCY_KEY_SIZE_MAX:
        raise ValidationError.at(
            _POINTER,
            f"it has {len(key)} characters, more than {IDEMPOTENCY_KEY_SIZE_MAX}",
            fix="make it shorter, such as a UUID",
        )
    if not _VISIBLE.fullmatch(key):
        raise ValidationError.at(
            _POINTER, "a key has at least one character, and only visible ASCII ones", fix=_FIX
        )
    if not key.strip("."):  # in a URL's path it would mean another place
        raise ValidationError.at(
            _POINTER, "it is dots alone, and it becomes a message's id", fix=_FIX
        )
    return key


def encode_key(key: str) -> str:
    """Return the header's value that says *key*; raises as :func:`checked_key`."""
    escaped = checked_key(key).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def decode_key(value: str) -> str:
    """Return the key that a header's value says.

    Raises:
        ValidationError: It says none: it is neither a string nor a plain word, or no key can be so.
    """
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        return checked_key(_ESCAPED.sub(r"\1", quoted[1]))
    if not _BARE.fullmatch(value):
        raise ValidationError.at(
            _POINTER, "it is not one string in quotation marks, nor one plain word", fix=_FIX
        )
    return checked_key(value)
