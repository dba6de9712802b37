"""The blobs of a segment's objects: the parts that are fetched, and their digests."""

from __future__ import annotations

from eruca_broker.core.tier.manifests import DIGEST_SIZE, TierSegment
from eruca_broker.core.tier.queue_tables import QueueTable
from eruca_broker.store.tier.cache import Blob


def head_of(segment: TierSegment) -> Blob:
    """Return the blob of a side object's head."""
    return Blob(segment.side_path, 0, segment.head_size, bytes.fromhex(segment.head_sha256))


def blobs_of(
    segment: TierSegment, table: QueueTable, begin: int, end: int, *, is_side: bool
) -> list[Blob]:
    """Return the chunks of an object that have its bytes from *begin* to *end*."""
    head = table.head
    digests = head.side_digests if is_side else head.segment_digests
    size = table.body_size if is_side else head.size
    path, start = (segment.side_path, segment.head_size) if is_side else (segment.path, 0)
    found = []
    for number in range(begin // head.chunk_size, -(-end // head.chunk_size)):
        first = number * head.chunk_size
        found.append(
            Blob(
                path,
                start + first,
                start + min(first + head.chunk_size, size),
                digests[number * DIGEST_SIZE : (number + 1) * DIGEST_SIZE],
            )
        )
    return found
