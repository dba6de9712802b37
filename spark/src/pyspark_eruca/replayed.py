"""Find the messages of a replay that a topic already has.

A replayed message's id is derived from the replay's name and the row's origin. So if the same row
is replayed again under the same name, it is recognised.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow.compute as pc

from eruca.exporting.exports import Exports
from eruca.exporting.ranges import Range

REPLAY_ID_PROPERTY: Final = "ERUCA_REPLAY_ID"
REPLAY_ORIGIN_PROPERTY: Final = "ERUCA_REPLAY_ORIGIN"


class Digests:
    """A set of 16-byte digests, with little memory overhead."""

    SIZE: Final = 16

    def __init__(self, digests: Iterable[bytes] = ()) -> None:
        self._bytes = b"".join(sorted(digests))

    def __len__(self) -> int:
        return len(self._bytes) // self.SIZE

    def __getitem__(self, index: int) -> bytes:
        return self._bytes[index * self.SIZE : (index + 1) * self.SIZE]

    def __contains__(self, digest: object) -> bool:
        assert isinstance(digest, bytes)
        at = bisect.bisect_left(self, digest)
        return at < len(self) and self[at] == digest


def replay_digest(replay: str, origin: str) -> bytes:
    """Return a digest that identifies a replayed message: of its replay and its origin."""
    return hashlib.blake2b(f"{replay}\x00{origin}".encode(), digest_size=Digests.SIZE).digest()


def already_replayed(exports: Exports, ranges: Iterable[Range], replay: str) -> Iterator[bytes]:
    """Yield the digests of the replay's messages in *ranges* of the target."""
    for one in ranges:
        for batch in exports.read([one]):
            # Null for a damaged message, too, which counts as none of the replay.
            ids = pc.map_lookup(batch.column("properties"), REPLAY_ID_PROPERTY, "first")
            is_ours = pc.equal(ids, replay)
            for message_id in batch.column("message_id").filter(is_ours).to_pylist():
                yield bytes.fromhex(message_id)
