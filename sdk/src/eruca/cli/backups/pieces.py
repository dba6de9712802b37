"""Pieces: the parts of a log that a backup's place holds, and what a backup can reuse of them.

A piece is a run of whole records of one segment. Its name says everything about it, so a run that
was killed leaves pieces that the next one can use. Pure.

Invariants: a piece never changes. It belongs to one segment, so a piece begins wherever a segment
begins. The name ends in random digits: two uploads never have the same name, so nobody replaces,
or deletes, what another run has just written.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, Self

import msgspec

UPLOAD_SIZE: Final = 4  # random bytes
_NAME: Final = re.compile(
    r"([0-9]{20})-([0-9]{20})-([0-9]{20})-([0-9]{1,19})-([0-9]{1,15})-([0-9a-f]{64})-([0-9a-f]{8})"
)

Prove = Callable[["Piece"], Awaitable[bool]]
"""Tells whether the log still has the last record of a piece, byte for byte."""


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the log that is stored as one object."""

    begin: int  # log offset of the first byte
    end: (
        int  # log offset at which the next piece begins; the next segment if a blank record follows
    )
    size: int  # bytes of the records; 0: only the blank record that ends a segment
    last: int  # log offset of the last record; the beginning if there is none
    epoch: int  # of the last record; 0: without replicas
    stored_ms: int  # store time of the last record, in ms since 1970
    sha256: str  # of the bytes
    upload: str  # random

    def __post_init__(self) -> None:
        assert 0 <= self.size <= self.end - self.begin, self
        assert self.begin <= self.last <= self.begin + self.size, self

    @property
    def name(self) -> str:
        """The piece's name, which says all of it but its size."""
        return (
            f"{self.begin:020d}-{self.end:020d}-{self.last:020d}-{self.epoch}-{self.stored_ms}"
            f"-{self.sha256}-{self.upload}"
        )

    @property
    def fills_segment(self) -> bool:
        """Tell whether a blank record follows, up to the segment's end."""
        return self.end > self.begin + self.size

    @classmethod
    def of_name(cls, name: str, size: int) -> Self | None:
        """Return the piece of this name; None if it is not the name of a piece of *size* bytes."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        begin, end, last, epoch, stored_ms = map(int, match.groups()[:5])
        if not (0 <= size <= end - begin and begin <= last <= begin + size):
            return None
        return cls(begin, end, size, last, epoch, stored_ms, match[6], match[7])


def is_chain(pieces: Sequence[Piece]) -> bool:
    """Tell whether each piece begins where the one before it ends."""
    return all(before.end == after.begin for before, after in pairwise(pieces))


async def usable(pieces: Iterable[Piece], begin: int, prove: Prove) -> list[Piece]:
    """Return the chain of *pieces* from *begin* on that the log still has.

    A log changes only at its end: if it has a record of a piece, it has everything before it. So it
    is enough to prove the last record, and a later proof covers the pieces before. If several
    pieces begin at one place, the log was truncated between two backups, or two backups ran at
    once; each of them is proved.

    Args:
        pieces: All pieces of one log, in any order.
        begin: Log offset of the log's first record.
        prove: Asks the log.
    """
    at: dict[int, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: (bool(piece.size), piece.end), reverse=True):
        at.setdefault(piece.begin, []).append(piece)
    chain: list[Piece] = []
    place = begin
    while found := at.get(place, []):
        piece = found[0]
        if len(found) > 1:
            proved = [piece for piece in found if piece.size and await prove(piece)]
            piece = proved[0] if proved else found[-1]
            if not proved and piece.size:
                break
        if piece.end == place:  # nobody writes such a piece
            break
        chain.append(piece)
        place = piece.end
    return chain[: await _proved_count(chain, prove)]


async def _proved_count(chain: Sequence[Piece], prove: Prove) -> int:
    """Return the number of pieces up to the last one that the log still has."""
    with_records = [index for index, piece in enumerate(chain) if piece.size]
    if not with_records:
        return 0
    if await prove(chain[with_records[-1]]):
        return with_records[-1] + 1
    proved, lost = -1, len(with_records) - 1  # places in with_records: proved < answer <= lost
    while lost - proved > 1:
        middle = (proved + lost) // 2
        if await prove(chain[with_records[middle]]):
            proved = middle
        else:
            lost = middle
    return with_records[proved] + 1 if proved >= 0 else 0
