"""Decompression of RocketMQ's codecs: zlib, LZ4 and Zstandard.

Eruca's own clients write only zlib. But its brokers accept messages of RocketMQ's clients, which
may use the others. pyarrow decompresses those. Few programs need it, so pyarrow is optional (extra
``arrow``) and imported for the first such body.

A few kilobytes can decompress to gigabytes. A body that exceeds the limit is refused.

Source: RocketMQ 5.3, ``CompressorFactory``: zlib, LZ4 frames, Zstandard.
"""

from __future__ import annotations

from typing import Final

from eruca.contract.records import SysFlag
from eruca.core.messages.accelerators import COMPRESSION_ERRORS, decompressobj

UNPACKED_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of one body
ZLIB: Final = "zlib"
CODECS: Final = {
    0: ZLIB,  # from versions without a choice
    int(SysFlag.COMPRESSION_ZLIB): ZLIB,
    int(SysFlag.COMPRESSION_LZ4): "lz4",
    int(SysFlag.COMPRESSION_ZSTD): "zstd",
}
_PIECE_SIZE: Final = 1024 * 1024


def unpacked(stored: bytes, codec: str, size_max: int = UNPACKED_SIZE_MAX) -> bytes:
    """Return the decompressed body.

    Raises:
        ModuleNotFoundError: pyarrow is required and not installed.
        ValueError: The body is invalid, or larger than *size_max* bytes.
    """
    if codec == ZLIB:
        return _unpacked_by_zlib(stored, size_max)
    return _unpacked_by_arrow(stored, codec, size_max)


def _unpacked_by_zlib(stored: bytes, size_max: int) -> bytes:
    stream = decompressobj()
    try:
        body: bytes = stream.decompress(stored, size_max + 1)
    except COMPRESSION_ERRORS as error:
        raise ValueError(str(error)) from None
    if len(body) > size_max:
        raise _too_large(size_max)
    if not stream.eof:
        raise ValueError("its end is missing")
    return body


def _unpacked_by_arrow(stored: bytes, codec: str, size_max: int) -> bytes:
    import pyarrow as pa  # takes 0.2 s or more, and few programs need it

    if not stored:  # Arrow accepts it as a complete empty stream
        raise ValueError("its end is missing")
    pieces: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
            while piece := stream.read(_PIECE_SIZE):
                pieces.append(piece)
                size += len(piece)
                if size > size_max:
                    raise _too_large(size_max)
    except OSError as error:
        raise ValueError(str(error)) from None
    return b"".join(pieces)


def _too_large(size_max: int) -> ValueError:
    return ValueError(f"it has more than {size_max} bytes")
