"""The messages to send: 1 KiB bodies, each with a tag, a key and a unique id, as in production."""

from __future__ import annotations

import os
from typing import Final

from bench.load import request
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Record, encode_unstamped
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch

TOPIC: Final = "bench"
BODY_SIZE: Final = 1024
QUEUES: Final = 8
_DISTINCT_BYTES: Final = 16 * 1024 * 1024  # of batches, before the first one repeats


def records(count: int, *, queue_id: int = 0, first: int = 0) -> list[bytes]:
    """Return encoded records, ready for a broker to stamp."""
    body = os.urandom(BODY_SIZE)
    return [
        encode_unstamped(
            Record(
                topic=TOPIC,
                body=body,
                queue_id=queue_id,
                born_timestamp=1_700_000_000_000,
                properties=encode_properties(
                    {TAGS: "AA", KEYS: f"key-{number:08d}", UNIQ_KEY: f"{number:032X}"}
                ),
            )
        )
        for number in range(first, first + count)
    ]


def distinct_batches(count: int, *, queue_id: int = 0) -> list[bytes]:
    """Return batches of *count* messages, no two with a key in common.

    A batch that repeats at once would meet its own keys in the key index, which is unrealistic.
    """
    batches = max(_DISTINCT_BYTES // (count * BODY_SIZE), 1)
    return [
        encode_batch(records(count, queue_id=queue_id, first=number * count))
        for number in range(batches)
    ]


def batch_request(count: int, *, queue_id: int = 0, first: int = 0) -> bytes:
    """Return the request that sends a batch."""
    return request_of(encode_batch(records(count, queue_id=queue_id, first=first)), queue_id)


def request_of(batch: bytes, queue_id: int = 0) -> bytes:
    """Return the request that sends *batch*."""
    return request(
        "POST",
        f"/v1/topics/{TOPIC}/queues/{queue_id}/records",
        batch,
        f"content-type: {RECORDS_MEDIA_TYPE}",
    )
