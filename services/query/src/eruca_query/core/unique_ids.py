"""Unique ids as 16 bytes, the form in which PostgreSQL looks them up.

Nearly all ids are 32 upper-case hex digits, as clients make them; these are stored as the bytes
they spell. Any other text is allowed, too: it is stored under its digest, together with the text
itself, which a lookup compares.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca.core.messages.record_columns import strided
from eruca_query.core.property_values import Slices

HEX_SIZE: Final = 32
_WORD: Final = 8  # digits that are read in one step
NO_ID: Final = bytes(16)
_CANONICAL: Final = re.compile(rb"[0-9A-F]{32}\Z")
_NO_DIGIT: Final = 255
_DIGITS: Final = np.full(256, _NO_DIGIT, np.uint8)
_DIGITS[np.frombuffer(b"0123456789ABCDEF", np.uint8)] = np.arange(16)


class StoredId(NamedTuple):
    """An id as it is stored."""

    code: bytes  # 16
    text: bytes  # empty if the code spells it


def stored_id(text: bytes) -> StoredId:
    """Return the stored form of the id *text*; the id of zeros is stored like an irregular one."""
    if _CANONICAL.match(text):
        code = bytes.fromhex(text.decode())
        if code != NO_ID:
            return StoredId(code, b"")
    return StoredId(hashlib.md5(text, usedforsecurity=False).digest(), text)


def id_text(code: bytes, text: bytes) -> str | None:
    """Return the id with this stored form; None for a message without an id."""
    if text:
        return text.decode("utf-8", "replace")
    return None if code == NO_ID else code.hex().upper()


class StoredIds(NamedTuple):
    """The ids of n messages."""

    codes: NDArray[np.uint8]  # n x 16
    odd: dict[int, bytes]  # by row: the text of an id that its code does not spell


def stored_ids(ids: Slices) -> StoredIds:
    """Return the stored form of *ids*; zeros for a message without an id."""
    codes = np.zeros((len(ids.starts), 16), np.uint8)
    plain = np.flatnonzero(ids.sizes == HEX_SIZE)
    words = strided(ids.data, "u8", _WORD) if len(plain) else np.zeros(0, np.uint64)
    letters = np.empty((len(plain), HEX_SIZE // _WORD), np.uint64)
    for number in range(HEX_SIZE // _WORD):
        letters[:, number] = words[ids.starts[plain] + number * _WORD]
    digits = _DIGITS[letters.view(np.uint8)]
    spelt = (digits[:, 0::2] << 4) | (digits[:, 1::2] & 0x0F)
    is_hex = ~(digits == _NO_DIGIT).any(axis=1) & spelt.any(axis=1)
    codes[plain[is_hex]] = spelt[is_hex]
    odd: dict[int, bytes] = {}
    is_odd = ids.sizes > 0
    is_odd[plain[is_hex]] = False
    for row in np.flatnonzero(is_odd).tolist():
        code, text = stored_id(ids.value(row))
        codes[row] = np.frombuffer(code, np.uint8)
        odd[row] = text
    return StoredIds(codes, odd)
