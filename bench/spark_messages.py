"""Messages for measurements with Spark: a topic of four queues, filled evenly."""

from __future__ import annotations

import asyncio
import random
import string
from typing import Final

import httpx

from bench.batches import TOPIC
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Record, encode_unstamped
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch

QUEUES: Final = 4
_BATCH: Final = 1_000  # messages per request
_BATCHES: Final = 10  # different ones per queue
_BODY_SIZE: Final = 200


async def fill_topic(http: httpx.AsyncClient, broker: str, rows: int) -> None:
    """Send *rows* messages, evenly over the queues."""
    settings = {"read_queue_count": QUEUES, "write_queue_count": QUEUES}
    (await http.put(f"{broker}/v1/topics/{TOPIC}", json=settings)).raise_for_status()

    async def fill(queue: int) -> None:
        batches = [_batch(queue, number) for number in range(_BATCHES)]
        left, number = rows // QUEUES, 0
        while left:
            count = min(left, _BATCH)
            whole = batches[number % _BATCHES]
            answer = await http.post(
                f"{broker}/v1/topics/{TOPIC}/queues/{queue}/records",
                content=encode_batch(whole[:count]),
                headers={"content-type": RECORDS_MEDIA_TYPE},
            )
            answer.raise_for_status()
            left, number = left - count, number + 1

    await asyncio.gather(*(fill(queue) for queue in range(QUEUES)))


def _batch(queue: int, number: int) -> list[bytes]:
    chosen = random.Random(_BATCHES * queue + number)
    return [
        encode_unstamped(
            Record(
                topic=TOPIC,
                queue_id=queue,
                body="".join(chosen.choices(string.ascii_letters, k=_BODY_SIZE)).encode(),
                born_timestamp=1_763_700_000_000,
                properties=encode_properties(
                    {
                        TAGS: chosen.choice(["AA", "DL", "UA"]),
                        KEYS: f"key-{chosen.randrange(100_000)}",
                        UNIQ_KEY: f"{chosen.getrandbits(128):032X}",
                        "origin": chosen.choice(["EWR", "JFK", "LGA"]),
                        "carrier": "of the morning",
                        "attempt": str(chosen.randrange(9)),
                    }
                ),
            )
        )
        for _ in range(_BATCH)
    ]
