"""Brokers and a transaction checker as functions of a test: the SDK's transactions, no network."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import (
    AlreadyDecidedError,
    ClientError,
    ErucaError,
    TransactionNotFoundError,
)
from eruca.contract.names import CHECKERS_NAMESPACE
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    problem_answer,
    route_of,
)

BEGUN_AT = "2026-01-01T00:00:00.000Z"
OUTCOMES = {"commit": "committed", "rollback": "rolled_back"}


@dataclass(slots=True)
class ScriptedBrokers:
    """Brokers that keep transactions in a dict; *faults* happen first, one per request."""

    begun: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    decided: dict[str, str] = field(default_factory=dict)
    faults: deque[tuple[str, ErucaError]] = field(default_factory=deque)

    def lose_answers(self, *errors: ErucaError) -> None:
        """Have the next requests take effect and then fail."""
        self.faults.extend(("after", error) for error in errors)

    def refuse(self, *errors: ErucaError) -> None:
        """Have the next requests fail before anything happens."""
        self.faults.extend(("before", error) for error in errors)

    async def __call__(self, request: Request) -> HttpResponse:
        when, fault = self.faults.popleft() if self.faults else ("", None)
        if when == "before":
            return _failed(fault)
        answer = self._answered(request)
        return _failed(fault) if when == "after" else answer

    def _answered(self, request: Request) -> HttpResponse:
        path = urlsplit(request.target).path
        body = msgspec.json.decode(request.body)
        if path == "/v1/transactions":
            return self._begin(request.url, body)
        if path == "/v1/transactions:begin":
            return _outcomes([self._begin(request.url, item) for item in body["transactions"]])
        if path == "/v1/transactions:decide":
            return _outcomes(
                [
                    self._decide(item["transaction_id"], item["outcome"], item)
                    for item in body["transactions"]
                ]
            )
        transaction_id, _, outcome = path.rpartition("/")[2].partition(":")
        return self._decide(transaction_id, outcome, body)

    def _decide(self, transaction_id: str, outcome: str, body: dict[str, Any]) -> HttpResponse:
        if all(known != transaction_id for _, known in self.begun):
            return problem_answer(TransactionNotFoundError(f"no transaction {transaction_id}"))
        known = self.decided.setdefault(transaction_id, outcome)
        if known != outcome:
            decision = {"outcome": known, "by": "check"}
            return problem_answer(AlreadyDecidedError("it was decided", decision=decision))
        return json_answer(
            {
                "transaction_id": transaction_id,
                "state": OUTCOMES[outcome],
                "outcome": outcome,
                "by": "producer",
                "decided_at": BEGUN_AT,
                "durability": "written",
                "reason": body.get("reason"),
            }
        )

    def _begin(self, url: str, body: dict[str, Any]) -> HttpResponse:
        transaction_id = body["message"]["message_id"]
        repeated = (url, transaction_id) in self.begun
        self.begun[url, transaction_id] = body
        receipt = {
            "transaction_id": transaction_id,
            "broker_name": urlsplit(url).hostname,
            "topic": body["topic"],
            "queue_id": body["queue_id"],
            "half_queue_offset": len(self.begun) - 1,
            "half_log_offset": 1_000,
            "begun_at": BEGUN_AT,
            "durability": "written",
            "repeated": repeated,
        }
        return json_answer(receipt, 200 if repeated else 201)


@dataclass(slots=True)
class ScriptedChecker:
    """A transaction checker that asks what a test puts into it, and keeps the answers."""

    answers: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    takes: list[dict[str, str]] = field(default_factory=list)
    faults: deque[ErucaError] = field(default_factory=deque)
    answer_faults: deque[ErucaError] = field(default_factory=deque)
    _waiting: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    def ask(self, transaction_id: str, **fields: Any) -> None:  # noqa: ANN401
        """Have a producer asked about a transaction."""
        self._waiting.put_nowait(check_of(transaction_id, **fields))

    async def __call__(self, request: Request) -> HttpResponse:
        url = urlsplit(request.target)
        if url.path.endswith("/checks"):
            return await self._take({name: value[0] for name, value in parse_qs(url.query).items()})
        if self.answer_faults:
            return problem_answer(self.answer_faults.popleft())
        check_id = url.path.rpartition("/")[2]
        answer = msgspec.json.decode(request.body)
        self.answers.append((check_id, answer))
        state = OUTCOMES.get(answer["answer"], "pending")
        transaction_id = check_id.partition(".")[0]
        return json_answer({"check_id": check_id, "transaction_id": transaction_id, "state": state})

    async def _take(self, query: dict[str, str]) -> HttpResponse:
        self.takes.append(query)
        if self.faults:
            return problem_answer(self.faults.popleft())
        checks = [await self._waiting.get()]
        while len(checks) < int(query["count_max"]) and not self._waiting.empty():
            checks.append(self._waiting.get_nowait())
        return json_answer({"checks": checks})


def check_of(transaction_id: str, *, number: int = 1, seconds: int = 30) -> dict[str, Any]:
    """Return a check as a transaction checker sends it."""
    return {
        "check_id": f"{transaction_id}.{number}",
        "transaction_id": transaction_id,
        "producer_group": "group",
        "broker_name": "a",
        "topic": "orders",
        "queue_id": 1,
        "number": number,
        "begun_at": BEGUN_AT,
        "asked_at": "2026-01-01T00:01:00Z",
        "answer_until": f"2026-01-01T00:01:{seconds:02}Z",
        "message": {
            "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
            "queue_id": 0,
            "queue_offset": 7,
            "log_offset": 1_000,
            "size": 200,
            "message_id": transaction_id,
            "offset_message_id": "7F00000100002A9F00000000000003E8",
            "tag": "paid",
            "keys": ["order-7"],
            "sharding_key": None,
            "properties": {"colour": "red"},
            "body": {"text": "an order"},
            "flag": 0,
            "reconsume_times": 0,
            "born_at": BEGUN_AT,
            "born_host": "127.0.0.1:5000",
            "stored_at": BEGUN_AT,
            "store_host": "127.0.0.1:10911",
        },
    }


def transaction_client(
    brokers: Callable[[Request], Any],
    *broker_names: str,
    checkers: Mapping[str, ScriptedChecker] | None = None,
) -> tuple[eruca.AsyncClient, ScriptedTransport]:
    """Return a client, and what carries its requests to brokers.

    The checker ``c`` is at ``http://c``; name servers know all that are given.
    """
    names = broker_names or ("a", "b")
    known = checkers or {}

    async def others(request: Request) -> HttpResponse:
        host = urlsplit(request.url).hostname or ""
        if host in known:
            return await known[host](request)
        if "wait_seconds" in request.target:
            await asyncio.Event().wait()  # nothing changes
        if request.target.startswith("/v1/kv/"):
            entries = {name: f"http://{name}" for name in known}
            return json_answer({"namespace": CHECKERS_NAMESPACE, "entries": entries})
        topic = request.target.split("/")[3]
        return json_answer(route_of(topic, *names), etag='"1"')

    hot, rest = ScriptedTransport(brokers), ScriptedTransport(others)
    client = eruca.AsyncClient("http://namesrv", hot_transport=hot, transport=rest)
    client.context.held_transport = rest
    return client, hot


def _outcomes(answers: list[HttpResponse]) -> HttpResponse:
    """Return the answer about many transactions, each of which would have got one of *answers*."""
    return json_answer(
        {
            "results": [
                {("receipt" if answer.status < 300 else "problem"): msgspec.Raw(answer.body)}
                for answer in answers
            ]
        }
    )


def _failed(fault: ErucaError | None) -> HttpResponse:
    assert fault is not None
    if isinstance(fault, ClientError):  # it never came over the wire
        raise fault
    return problem_answer(fault)
