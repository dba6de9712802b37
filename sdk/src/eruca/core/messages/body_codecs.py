"""The compressions that RocketMQ's clients can write, undone: zlib, LZ4 and Zstandard.

Eruca's own clients write zlib only, but its brokers take what such a client has written. The others
are undone by pyarrow. Few programs ever meet one; so pyarrow stays optional (extra ``arrow``), and
is imported when the first body asks.

A few kilobytes can stand for gigabytes. What unpacks to more than a body may have is refused.

Source: RocketMQ 5.3, ``CompressorFactory``: zlib, LZ4 frames, Zstandard.
"""

from __future__ import annotations

from typing import Final

from eruca.contract.records import SysFlag
from eruca.core.messages.accelerators import COMPRESSION_ERRORS, decompressobj

UNPACKED_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of one body
ZLIB: Final = "zlib"
CODECS: Final = {
    0: ZLIB,  # written before there was a choice
    int(SysFlag.COMPRESSION_ZLIB): ZLIB,
    int(SysFlag.COMPRESSION_LZ4): "lz4",
    int(SysFlag.COMPRESSION_ZSTD): "zstd",
}
_PIECE_SIZE: Final = 1024 * 1024


def unpacked(stored: bytes, codec: str, size_max: int = UNPACKED_SIZE_MAX) -> bytes:
    """Return a body as it was before it was compressed.

    Raises:
        ModuleNotFoundError: It takes pyarrow, which is not installed.
        ValueError: It does not unpack, or to more than *size_max* bytes.
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
    import pyarrow as pa  # 0.2 s and more, which few programs need to spend

    if not stored:  # which Arrow takes for a whole stream of nothing
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
