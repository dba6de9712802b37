"""A broker that is a function, and the queues that a pull consumer reads from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import ErucaError
from eruca.contract.records import Record, encode_record
from eruca.contract.wire import PullStatus, encode_multi_pull_heads, encode_pull_head
from support.scripted_transport import Request, json_answer, problem_answer, route_of
from support.waiting import until

Broker = Callable[[Request], Awaitable[HttpResponse]]


class Queues:
    """Brokers that hold messages and answer pulls, and count what is asked of them."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], list[bytes]] = {}
        self.errors: dict[str, ErucaError] = {}
        self.min_offset = 0
        self.marks: dict[str, str] = {}  # headers of answers, as of another replica
        self.arrived = asyncio.Event()
        self.commits: list[dict[str, Any]] = []
        self.held = 0
        self.brokers = ["a", "b"]
        self.route_changed = asyncio.Event()
        self.old_count = 0  # messages of each queue that were there before anybody asked

    def store(self, queue_id: int, *bodies: str, broker: str = "a") -> None:
        self.stored.setdefault((broker, queue_id), []).extend(body.encode() for body in bodies)
        arrived, self.arrived = self.arrived, asyncio.Event()
        arrived.set()

    def change_route(self, *brokers: str) -> None:
        self.brokers = list(brokers)
        changed, self.route_changed = self.route_changed, asyncio.Event()
        changed.set()

    async def pull(self, request: Request) -> HttpResponse:
        broker = request.url.removeprefix("http://")
        if broker in self.errors:
            return problem_answer(self.errors[broker])
        asked = msgspec.json.decode(request.body)
        while True:
            share = max(asked["count_max"] // len(asked["queues"]), 1)
            sections = [
                (index, self.section(broker, queue, share))
                for index, queue in enumerate(asked["queues"])
            ]
            answered = [(index, block) for index, block in sections if block is not None]
            if answered:
                return HttpResponse(200, self.marks, multi_pull(answered))
            if not asked["wait_seconds"]:
                return HttpResponse(200, self.marks, multi_pull([]))
            self.held += 1
            try:
                await self.arrived.wait()
            finally:
                self.held -= 1

    def section(self, broker: str, queue: dict[str, Any], count_max: int) -> bytes | None:
        stored = self.stored.get((broker, queue["queue_id"]), [])
        offset = queue["offset"]
        if offset == len(stored):
            return None
        if not self.min_offset <= offset <= len(stored):
            small = offset < self.min_offset
            status = PullStatus.OFFSET_TOO_SMALL if small else PullStatus.OFFSET_TOO_LARGE
            return head(status, min_offset=self.min_offset, max_offset=len(stored))
        records = [
            encode_record(Record(queue["topic"], body, queue_offset=offset + index))
            for index, body in enumerate(stored[offset : offset + count_max])
        ]
        found = head(
            PullStatus.FOUND,
            records,
            next_offset=offset + len(records),
            min_offset=self.min_offset,
            max_offset=len(stored),
        )
        return found + b"".join(records)

    async def rest(self, request: Request) -> HttpResponse:
        if request.url == "http://namesrv":
            is_known = request.headers.get("if-none-match") == f'"{self.brokers}"'
            if "wait_seconds" in request.target and is_known:
                await self.route_changed.wait()
            return json_answer(route_of("orders", *self.brokers), etag=f'"{self.brokers}"')
        if request.method == "PUT":
            self.commits.append(msgspec.json.decode(request.body))
            return HttpResponse(204, {}, b"")
        if "/offset?" in request.target:
            queue_id = int(request.target.partition("/queues/")[2].partition("/")[0])
            stored = self.stored.get((request.url.removeprefix("http://"), queue_id), [])
            return self.marked(
                {
                    "topic": "orders",
                    "queue_id": queue_id,
                    "timestamp": "2026-11-21T08:00:00Z",
                    "boundary": "lower",
                    "offset": min(self.old_count, len(stored)),
                }
            )
        if "/groups/" in request.target:
            return self.marked({"group": "g", "offsets": []})
        broker = request.url.removeprefix("http://")
        return self.marked(
            {
                "topic": "orders",
                "queues": [
                    {
                        "queue_id": queue_id,
                        "min_offset": self.min_offset,
                        "max_offset": len(self.stored.get((broker, queue_id), [])),
                        "earliest_stored_at": None,
                        "latest_stored_at": None,
                    }
                    for queue_id in range(2)
                ],
            }
        )

    def marked(self, document: object) -> HttpResponse:
        """Return a JSON answer, as of the replica that the marks tell."""
        plain = json_answer(document)
        return HttpResponse(plain.status, {**plain.headers, **self.marks}, plain.body)


def head(
    status: PullStatus,
    records: Sequence[bytes] = (),
    *,
    next_offset: int = 0,
    min_offset: int = 0,
    max_offset: int = 0,
) -> bytes:
    return encode_pull_head(
        status,
        next_offset=next_offset,
        min_offset=min_offset,
        max_offset=max_offset,
        sizes=b"".join(len(record).to_bytes(4, "big") for record in records),
        records_size=sum(map(len, records)),
    )


def multi_pull(blocks: Sequence[tuple[int, bytes]]) -> bytes:
    preamble, heads = encode_multi_pull_heads((index, len(block)) for index, block in blocks)
    return preamble + b"".join(h + block for h, (_, block) in zip(heads, blocks, strict=True))


def texts(messages: list[eruca.ReceivedMessage]) -> list[str]:
    return [message.text() for message in messages]


async def until_filled(consumer: eruca.AsyncPullConsumer, count: int) -> None:
    await consumer.assignment()
    await until(lambda: sum(flow.count for flow in consumer._assignment.flows) == count)
