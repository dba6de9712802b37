"""Verify index files after a crash: compare them with their marks at a checkpoint."""

from __future__ import annotations

from typing import NamedTuple

from eruca_broker.store.index.index_file import DamagedIndexError, IndexFile, IndexMark


class DamagedFile(NamedTuple):
    """An index file that was dropped when the index was opened, and the reason."""

    name: str
    reason: str


class Proof(NamedTuple):
    """The result of verifying a file that was full before a crash."""

    name: str
    is_sound: bool


def fault_of(file: IndexFile, mark: IndexMark | None) -> str | None:
    """Return how a file differs from its mark, or None."""
    if mark is None or mark.index_count < file.header.index_count:
        return "no checkpoint has its entries"
    if file.slots is None and mark.digest is not None:
        file.digest = mark.digest
        return None if file.compute_digest() == mark.digest else "its content has changed"
    try:
        if file.slots is None:  # full, and sealed since
            file.load_slots()
            file.is_flushed = False
    except DamagedIndexError as error:
        return str(error)
    is_same = (file.header.index_count, file.entries_crc) == mark[:2]
    return None if is_same else "its entries have changed"


def prove(file: IndexFile, digest: int) -> Proof:
    """Verify a full file by its *digest*; one that is missing is not sound."""
    try:
        return Proof(file.name, file.compute_digest() == digest)
    except FileNotFoundError:
        return Proof(file.name, is_sound=False)
