"""Bodies made of pieces: what is small is joined, what is large is never copied.

A piece is ``bytes`` or a ``memoryview`` of something that stays as it is while it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Piece: TypeAlias = bytes | memoryview

JOIN_SIZE_MAX: Final = 64 * 1024  # bytes up to which copying is cheaper than one more write


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the same bytes in fewer pieces: neighbours that are small are joined."""
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
