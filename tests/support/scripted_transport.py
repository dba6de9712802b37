"""A transport without a network: brokers and name servers are functions of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

import eruca
from eruca.aio.cluster.following import FollowingTransport
from eruca.aio.http.transport import HttpResponse, HttpTransport
from eruca.contract.errors import PROBLEM_MEDIA_TYPE, ErucaError, TimeoutExpiredError
from eruca.contract.messages import BatchReceipt
from eruca.contract.records import Buffer, Record
from eruca.contract.wire import batch_extent, batch_sizes
from support.records import decode_draft


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was sent."""

    method: str
    url: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float

    @property
    def records(self) -> list[Record]:
        """The records of a batch."""
        count, position = batch_extent(self.body)
        records = []
        for size in batch_sizes(self.body, count):
            records.append(decode_draft(self.body, position))
            position += size
        return records


Answerer = Callable[[Request], Awaitable[HttpResponse]]


@dataclass(slots=True)
class ScriptedTransport:
    """Gives each request to *answer*, within the request's time-out."""

    answer: Answerer
    requests: list[Request] = field(default_factory=list)
    is_closed: bool = False
    pipe: Callable[[], HttpTransport | None] | None = None  # makes a connection of its own

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        request = Request(method, url, target, dict(headers), b"".join(body), timeout)
        self.requests.append(request)
        try:
            async with asyncio.timeout(timeout):
                return await self.answer(request)
        except TimeoutError:
            raise TimeoutExpiredError(f"{url}: no answer within {timeout} s") from None

    async def close(self) -> None:
        self.is_closed = True


def transport_of(client: eruca.AsyncClient) -> ScriptedTransport:
    """Return the scripted transport under what follows masters, for ordinary requests."""
    following = client.context.transport
    assert isinstance(following, FollowingTransport)
    assert isinstance(following.transport, ScriptedTransport)
    return following.transport


def json_answer(value: object, status: int = 200, **headers: str) -> HttpResponse:
    """Return an answer with a JSON body; underscores in header names stand for hyphens."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return HttpResponse(status, named, msgspec.json.encode(value))


def problem_answer(error: ErucaError) -> HttpResponse:
    """Return the answer a service gives for *error*."""
    headers = {"content-type": PROBLEM_MEDIA_TYPE}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = f"{error.retry_after_seconds:g}"
    return HttpResponse(error.status, headers, msgspec.json.encode(error.problem("request-1")))


def receipt_answer(request: Request, queue_offset: int = 0, **fields: Any) -> HttpResponse:  # noqa: ANN401
    """Return the answer of a broker that has stored the batch in *request*."""
    count, _ = batch_extent(request.body)
    receipt = {
        "queue_id": int(request.target.split("/")[-2]),
        "queue_offset": queue_offset,
        "log_offset": 1_000,
        "count": count,
        "stored_at_ms": 1_700_000_000_000,
        "durability": "written",
        **fields,
    }
    return json_answer(msgspec.convert(receipt, BatchReceipt), 201)


def live_brokers(*names: str) -> dict[str, Any]:
    """Return the brokers a name server tells; the broker ``a`` is at ``http://a``."""
    return {
        "brokers": [
            {
                "cluster": "eruca",
                "broker_name": name,
                "brokers": [
                    {
                        "broker_id": 0,
                        "role": "master",
                        "urls": {"default": f"http://{name}"},
                        "store_host": "10.0.0.1:10911",
                        "data_version": 1,
                        "last_seen_at": "2026-01-01T00:00:00Z",
                        "expires_at": "2026-01-01T00:02:00Z",
                    }
                ],
            }
            for name in names
        ]
    }


def route_of(topic: str, *broker_names: str, queue_count: int = 2) -> dict[str, Any]:
    """Return the route of a topic; the broker ``a`` is at ``http://a``."""
    return {
        "topic": topic,
        "queues": [
            {
                "broker_name": name,
                "read_queue_count": queue_count,
                "write_queue_count": queue_count,
                "permission": "rw",
            }
            for name in broker_names
        ],
        "brokers": [
            {
                "cluster": "eruca",
                "broker_name": name,
                "urls": {"0": {"default": f"http://{name}"}},
                "store_hosts": {"0": "10.0.0.1:10911"},
            }
            for name in broker_names
        ],
    }
