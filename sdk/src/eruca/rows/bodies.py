"""Bodies as producers sent them: compressed ones are decompressed, within bounds.

All three compressions of RocketMQ are supported. A body that cannot be decompressed, or that would
exceed the maximum of a body, is returned as stored. Its ``sys_flag`` then keeps the bits of the
compression, which are cleared for a decompressed body.

A few kilobytes can expand to gigabytes. So the decompressed size of one batch is bounded, and the
batch ends with the body that reaches the bound. A single body that reaches ``UNPACKED_SIZE_MAX``
stays compressed.

Source: RocketMQ 5.3, ``CompressorFactory``: zlib, LZ4 frames, Zstandard.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eruca.contract.records import COMPRESSION_MASK, SysFlag
from eruca.core.messages.body_codecs import CODECS, UNPACKED_SIZE_MAX, unpacked
from eruca.rows.record_fields import ArrowArray, Int32Array

BATCH_UNPACKED_SIZE_MAX: Final = 32 * 1024 * 1024  # bytes in one batch; the first body always fits

_COMPRESSED: Final = int(SysFlag.COMPRESSED)


class Bodies(NamedTuple):
    """The bodies of a batch's first rows; fewer than requested if they grew too large."""

    bodies: ArrowArray  # binary
    sys_flags: Int32Array


def are_compressed(sys_flags: Int32Array) -> NDArray[np.bool_]:
    """Return which messages have compressed bodies."""
    found: NDArray[np.bool_] = (sys_flags & _COMPRESSED) != 0
    return found


def plain_bodies(stored: ArrowArray, sys_flags: Int32Array) -> Bodies:
    """Return the first of the *stored* bodies decompressed, at least one, and their flags."""
    compressed = np.flatnonzero(are_compressed(sys_flags))
    if not len(compressed):
        return Bodies(stored, sys_flags)
    cleared = sys_flags.copy()
    plain_ones: list[bytes] = []
    room = BATCH_UNPACKED_SIZE_MAX
    end = len(sys_flags)
    for row in compressed.tolist():
        if room <= 0:
            end = row
            break
        body = stored[row].as_py()
        plain = unpack(body, int(sys_flags[row]))
        if plain is not None:
            body = plain
            cleared[row] &= ~(_COMPRESSED | COMPRESSION_MASK)
        plain_ones.append(body)
        room -= len(body)
    is_compressed = np.zeros(end, np.bool_)
    is_compressed[compressed[: len(plain_ones)]] = True
    sources = np.arange(end)
    sources[is_compressed] = len(stored) + np.arange(len(plain_ones))
    either = pa.chunked_array([stored, pa.array(plain_ones, pa.binary())])
    return Bodies(either.take(pa.array(sources)).combine_chunks(), cleared[:end])


def unpack(stored: bytes, sys_flag: int) -> bytes | None:
    """Decompress a body; return None if that fails."""
    codec = CODECS.get(sys_flag & COMPRESSION_MASK)
    if codec is None:
        return None
    try:
        return unpacked(stored, codec, UNPACKED_SIZE_MAX - 1)
    except ValueError:
        return None
