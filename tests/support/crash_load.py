"""Producers that keep books on a broker which is killed while they are at work.

Every message has a body of its own and is sent once. An answer to a producer is a promise; what
it asked for when the broker died is in doubt: it may have happened, wholly, or not.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Self

import httpx

from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Record, encode_unstamped
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch
from support.log_model import Key, LogModel

GROUP = "readers"
JSON_TOPIC = "orders"  # exists before the first kill, with QUEUE_COUNT queues, as does …
RECORDS_TOPIC = "flights"
QUEUE_COUNT = 3
TRANSIENT_TOPICS = ("passing", "fleeting")  # are created, filled and deleted over and over

Transient = list[bytes] | None
"""The bodies in queue 0 of a topic that comes and goes; None while there is no such topic."""


@dataclass
class Ledger:
    """The messages sent, promised, and in doubt."""

    random: Random
    sent: dict[bytes, Key] = field(default_factory=dict)
    stored: dict[bytes, int] = field(default_factory=dict)  # promised: body → queue offset
    committed: list[int] = field(default_factory=lambda: [-1])  # possible positions, see commit()
    transients: dict[str, list[Transient]] = field(
        default_factory=lambda: {name: [None] for name in TRANSIENT_TOPICS}
    )  # all that each may be
    _wanted_count: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)

    def body(self, topic: str, queue_id: int) -> bytes:
        """Return a new message's body, noted as sent."""
        size = self.random.choice((0, 20, 20, 200, 2_000))
        body = b"%d:" % len(self.sent) + b"." * size
        self.sent[body] = topic, queue_id
        return body

    def promise(self, bodies: Sequence[bytes], queue_offset: int) -> None:
        """Note that a batch has been acknowledged."""
        for body, offset in zip(bodies, itertools.count(queue_offset)):
            self.stored[body] = offset
        if len(self.stored) >= self._wanted_count:
            self._reached.set()

    async def promises(self, count: int) -> None:
        """Wait until *count* more messages have been acknowledged."""
        self._wanted_count = len(self.stored) + count
        self._reached = asyncio.Event()
        await self._reached.wait()

    def settle(self, model: LogModel) -> None:
        """Check the log against the books, and note how what was in doubt has ended."""
        found: dict[bytes, tuple[Key, int]] = {}
        for key, queue in model.queues.items():
            for record in queue:
                if record.body in self.sent:
                    assert record.body not in found, f"{record.body[:20]!r} is there twice"
                    found[record.body] = key, record.queue_offset
        for body, offset in self.stored.items():
            topic, queue_id = self.sent[body]
            if topic not in TRANSIENT_TOPICS:
                assert found.get(body) == ((topic, queue_id), offset), body[:20]
        for body, (key, _) in found.items():
            assert self.sent[body] == key
        committed = model.committed.get(GROUP, {}).get((JSON_TOPIC, 0), -1)
        assert committed in self.committed
        self.committed = [committed]
        for name, possible in self.transients.items():
            queue = model.queues.get((name, 0), [])
            actual = [record.body for record in queue] if name in model.topics else None
            assert actual in possible, name
            self.transients[name] = [actual]


class Load:
    """Clients of the broker at *url*, until it is gone."""

    def __init__(self, url: str, ledger: Ledger) -> None:
        self._ledger = ledger
        limits = httpx.Limits(max_connections=20)
        self._client = httpx.AsyncClient(base_url=f"{url}/v1", trust_env=False, limits=limits)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def prepare(self) -> None:
        """Create the topics that stay."""
        for topic in (JSON_TOPIC, RECORDS_TOPIC):
            await self._put(topic, QUEUE_COUNT)

    async def run(self) -> None:
        """Send until the broker is gone; raise what any of the clients found wrong."""
        workers = [
            *(self._send_each() for _ in range(2)),
            *(self._send_records((1, 5)) for _ in range(2)),
            self._send_records((64, 130)),
            self._send_together(),
            self._commit(),
            *(self._come_and_go(name) for name in TRANSIENT_TOPICS),
        ]
        outcomes = await asyncio.gather(*workers, return_exceptions=True)
        for outcome in outcomes:
            if not isinstance(outcome, httpx.TransportError):
                assert isinstance(outcome, BaseException)
                raise outcome

    async def _send_each(self) -> None:
        """One message a request, as JSON."""
        while True:
            queue_id = self._ledger.random.randrange(QUEUE_COUNT)
            body = self._ledger.body(JSON_TOPIC, queue_id)
            await self._send(JSON_TOPIC, queue_id, body)

    async def _send_together(self) -> None:
        """Some messages a request, as JSON."""
        path = f"/topics/{JSON_TOPIC}/messages"
        while True:
            bodies = [self._ledger.body(JSON_TOPIC, 1) for _ in range(7)]
            messages = [{"body": {"text": body.decode()}} for body in bodies]
            answer = await self._client.post(
                path, params={"queue_id": 1}, json={"messages": messages}
            )
            assert answer.status_code == 201, answer.text
            self._ledger.promise(bodies, answer.json()["messages"][0]["queue_offset"])

    async def _send_records(self, counts: tuple[int, int]) -> None:
        """A batch a request, laid out as the log has it."""
        random = self._ledger.random
        while True:
            queue_id = random.randrange(QUEUE_COUNT)
            bodies = [
                self._ledger.body(RECORDS_TOPIC, queue_id) for _ in range(random.randint(*counts))
            ]
            answer = await self._client.post(
                f"/topics/{RECORDS_TOPIC}/queues/{queue_id}/records",
                content=encode_batch([_record(queue_id, body) for body in bodies]),
                headers={"content-type": RECORDS_MEDIA_TYPE},
            )
            assert answer.status_code == 201, answer.text
            self._ledger.promise(bodies, answer.json()["queue_offset"])

    async def _commit(self) -> None:
        """One position after the other, up to where the queue ends, and from its start again."""
        while True:
            told = await self._client.get(f"/topics/{JSON_TOPIC}/queues")
            end = told.json()["queues"][0]["max_offset"]
            position = (self._ledger.committed[0] + 1) % (end + 1)
            self._ledger.committed.append(position)
            commit = {"topic": JSON_TOPIC, "queue_id": 0, "offset": position}
            answer = await self._client.put(f"/groups/{GROUP}/offsets", json={"offsets": [commit]})
            assert answer.status_code == 204, answer.text
            self._ledger.committed = [position]

    async def _come_and_go(self, topic: str) -> None:
        transients = self._ledger.transients
        while True:
            state = transients[topic][0]
            if state is None:
                transients[topic] = [None, []]
                await self._put(topic, 1)
                transients[topic] = [[]]
            elif len(state) < 3:
                body = self._ledger.body(topic, 0)
                transients[topic] = [state, [*state, body]]
                assert await self._send(topic, 0, body) == len(state)
                transients[topic] = [[*state, body]]
            else:
                transients[topic] = [state, None]
                answer = await self._client.delete(f"/topics/{topic}")
                assert answer.status_code == 204, answer.text
                transients[topic] = [None]

    async def _put(self, topic: str, count: int) -> None:
        counts = {"read_queue_count": count, "write_queue_count": count}
        answer = await self._client.put(f"/topics/{topic}", json=counts)
        assert answer.status_code in (200, 201), answer.text

    async def _send(self, topic: str, queue_id: int, body: bytes) -> int:
        answer = await self._client.post(
            f"/topics/{topic}/messages",
            params={"queue_id": queue_id},
            json={"body": {"text": body.decode()}, "keys": [_key(body), "every"], "tag": "json"},
        )
        assert answer.status_code == 201, answer.text
        offset: int = answer.json()["queue_offset"]
        self._ledger.promise([body], offset)
        return offset


def _record(queue_id: int, body: bytes) -> bytes:
    properties = encode_properties({UNIQ_KEY: _key(body), TAGS: "records", KEYS: "every"})
    return encode_unstamped(
        Record(topic=RECORDS_TOPIC, body=body, queue_id=queue_id, properties=properties)
    )


def _key(body: bytes) -> str:
    return f"key-{body.partition(b':')[0].decode()}"
