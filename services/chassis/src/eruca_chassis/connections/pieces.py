"""Bodies made of pieces: small ones are joined, large ones are never copied.

A piece is ``bytes``, or a ``memoryview`` of memory that does not change while it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Piece: TypeAlias = bytes | memoryview

JOIN_SIZE_MAX: Final = 64 * 1024  # bytes up to which a copy is cheaper than another write


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the same bytes in fewer pieces: small neighbours are joined."""
    small: list[Piece] = []
    size = 0
    for piece in pieces:
        if len(piece) > JOIN_SIZE_MAX:
            if small:
                yield b"".join(small)
                small, size = [], 0
            yield piece
            continue
        small.append(piece)
        size += len(piece)
        if size > JOIN_SIZE_MAX:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)
