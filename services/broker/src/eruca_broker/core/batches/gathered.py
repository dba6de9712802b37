"""Gather requests of one record each for one queue: together they are one batch.

Verifying, stamping, writing and publishing a batch of one costs as much as of a hundred. So the
broker gathers the single records that arrive in one tick of the event loop. Compiled code verifies
them and moves them together (``native/records.c``).

It decides nothing alone. If one of them is not plainly valid, there is no common batch: each is
verified by itself then (:func:`.batch.check_batch`), and gets its own answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, TypeAlias

from eruca.contract.records import (
    IPV4_HOST_SIZE,
    V1_TOPIC_SIZE_MAX,
    Host,
    SysFlag,
)
from eruca.contract.wire import BATCH_MAGIC, BATCH_PREAMBLE
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.batches.record_proof import expected_of
from eruca_broker.core.native.library import address_of, gather_singles
from eruca_broker.core.properties.found import (
    TABLE_ALIGNMENT,
    FoundProperties,
    empty_table,
)

SINGLE_SIZE_MAX: Final = 16 * 1024  # bytes of a request; copies of larger ones cost too much
SINGLE_BEGIN: Final = BATCH_MAGIC + (1).to_bytes(4)  # of a body: magic, and count of records

assert BATCH_PREAMBLE.size + 4 == 20, "gather_singles expects the record behind one size"


Single: TypeAlias = tuple[bytes | bytearray, int, bytes]
"""A request of one record: its bytes, those of them that precede its body, and its peer's IPv4
address and port as records have them."""


def is_single(request: bytes | bytearray) -> bool:
    """Return whether a request's body is small and says that it has one record, in no lane."""
    return len(request) <= SINGLE_SIZE_MAX and request.startswith(SINGLE_BEGIN)


def gather(store_host: Host, topic: str, queue_id: int, requests: Sequence[Single]) -> Batch | None:
    """Return the batch of the records of *requests*, which already have their peers' addresses.

    None if one of them is not plainly valid; nothing has been changed.

    Args:
        store_host: The broker's address.
        topic: Their topic.
        queue_id: Their queue.
        requests: At least one.
    """
    if len(topic) > V1_TOPIC_SIZE_MAX:
        return None
    host_bits = int(SysFlag.STORE_HOST_V6) if store_host.is_v6 else 0
    expected = expected_of(topic, queue_id, host_bits)
    count = len(requests)
    table = empty_table(count)
    whole, heads, born_hosts = zip(*requests, strict=True)
    size = sum(sizes := [*map(len, whole)])
    # One allocation and one address for requests and table.
    buffer = bytearray().join((*whole, bytes(-size % TABLE_ALIGNMENT), table))
    at = address_of(buffer)
    found = FoundProperties.at_end(buffer, at, count)
    hosts = b"".join(born_hosts)
    assert len(hosts) == IPV4_HOST_SIZE * count
    numbers = array("I", sizes).tobytes(), array("I", heads).tobytes()
    if gather_singles(at, *numbers, hosts, count, expected.at, found.at) < count:
        return None
    size = found.start_of(count)
    return Batch(topic, queue_id, buffer, 0, expected.layout, count, size, found=found, at=at)
