"""The compressions that RocketMQ's clients can write besides zlib, undone by pyarrow.

Nothing of Eruca writes them, but its brokers take what such a client has written. Few programs ever
meet one; so pyarrow stays optional (extra ``arrow``), and is imported when the first body asks.

A few kilobytes can stand for gigabytes. What unpacks to more than a body may have is refused.

Source: RocketMQ 5.3, ``CompressorFactory``: LZ4 frames, Zstandard.
"""

from __future__ import annotations

from typing import Final

from eruca.contract.records import SysFlag

UNPACKED_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of one body; as the query service has it
CODECS: Final = {
    int(SysFlag.COMPRESSION_LZ4): "lz4",
    int(SysFlag.COMPRESSION_ZSTD): "zstd",
}
_PIECE_SIZE: Final = 1024 * 1024


def unpacked(stored: bytes, codec: str) -> bytes:
    """Return a body as it was before it was compressed.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        ValueError: It does not unpack, or to more than a body may have.
    """
    import pyarrow as pa  # 0.2 s and more, which few programs need to spend

    pieces: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
            while piece := stream.read(_PIECE_SIZE):
                pieces.append(piece)
                size += len(piece)
                if size > UNPACKED_SIZE_MAX:
                    raise ValueError(f"it has more than {UNPACKED_SIZE_MAX} bytes")
    except OSError as error:
        raise ValueError(str(error)) from None
    return b"".join(pieces)
