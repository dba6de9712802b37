"""Every public call refuses nonsense by name, at once, and with an error of our own.

The calls are found by their signatures, so that a new one is swept as well. Nobody answers in
these tests: what gets as far as a request has not been refused.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

import eruca
from eruca import otel
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import ErucaError, TransportError, ValidationError
from eruca.inbox import AsyncInbox, Inbox
from support.scripted_transport import Request, ScriptedTransport

pytestmark = pytest.mark.anyio


class Nonsense:
    """No argument of any call."""

    def __repr__(self) -> str:
        return "<nonsense>"


NEVER: Final = Nonsense()
WRONG: Final[tuple[Any, ...]] = (
    NEVER,
    None,
    b"bytes",
    "",
    " ",
    "\0",
    "a\x01b",
    "\x02",
    "\x7f",
    "\ud800",
    "x" * 100_000,
    -1,
    0,
    2**80,
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    True,
    [],
    [None],
    [NEVER],
    {},
    {"a": NEVER},
    (1, 2, 3),
)
QUEUE: Final = eruca.MessageQueue("orders", "broker-a", 0)
SOUND: Final[dict[str, Any]] = {
    "message": eruca.Message("orders", b"x"),
    "messages": [eruca.Message("orders", b"x")],
    "topic": "orders",
    "topics": ["orders"],
    "group": "billing",
    "queue": QUEUE,
    "queues": [QUEUE],
    "broker_name": "broker-a",
    "message_id": "7F000001",
    "unique_id": "7F000001",
    "producer_group": "checkout",
    "transaction_id": "7F000001",
    "namespace": "names",
    "key": "key",
    "value": "value",
    "handle": "a-handle",
    "check_id": "7",
    "handler": lambda message: None,
    "condition": "a > 1",
    "name": "orders",
    "offset": 0,
    "log_offset": 0,
    "dead_letter": 0,
    "body": b"x",
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "settings": {"broker-a": eruca.TopicSettings()},
    "offset_message_id": "7F00000100002A9F0000000000000000",
    "recall_handle": "a-handle",
    "offsets": {QUEUE: 0},
    "dead_letter_id": 0,
    "to": "earliest",
    "reason": "because",
    "execute": lambda half: "commit",
    "deliveries": [],
    "delivery": NEVER,
    "client": NEVER,
    "interceptor": eruca.Interceptor(),
}
# What they are called with is the program's own, whatever it is, or nothing that can be wrong.
ANYTHING: Final = frozenset(
    {
        ("AsyncProducer.send", "selector_arg"),
        ("AsyncProducer.send_many", "selector_arg"),
        ("AsyncProducer.send_oneway", "selector_arg"),
        ("AsyncProducer.submit", "selector_arg"),
        ("Message.json", "value"),
        ("AsyncTransactionProducer.send_in_transaction", "selector_arg"),
        ("AsyncTransactionProducer.transaction", "selector_arg"),
        # What carries requests, and what spans go to, may be of any kind.
        ("AsyncClient", "ssl_context"),
        ("AsyncClient", "hot_transport"),
        ("AsyncClient", "transport"),
        ("Client", "ssl_context"),
        ("Client", "hot_transport"),
        ("Client", "transport"),
        ("instrument", "tracer_provider"),
    }
)


async def refusing(_: Request) -> HttpResponse:
    raise TransportError("nobody is there")


@pytest.fixture
async def client() -> AsyncIterator[eruca.AsyncClient]:
    transport = ScriptedTransport(refusing)
    client = eruca.AsyncClient(
        "http://127.0.0.1:1", timeout_seconds=0.01, hot_transport=transport, transport=transport
    )
    yield client
    await client.close(drain=False)


def made(client: eruca.AsyncClient) -> Iterator[object]:
    """Yield what has public calls."""
    yield client
    yield client.admin
    yield client.admin.groups
    yield client.admin.transactions
    yield client.query
    yield client.producer(send_timeout_seconds=0.01)
    yield client.transaction_producer(
        "checkout", check=lambda asked: None, send_timeout_seconds=0.01
    )
    yield client.pull_consumer("billing", topics="orders")
    yield client.push_consumer("billing")
    yield client.simple_consumer("billing", "orders")
    yield client.log_follower("broker-a")


def public_calls(thing: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, _ in inspect.getmembers(type(thing), inspect.isfunction):
        if not name.startswith("_") and name not in ("leave", "close", "stop_soon", "run", "stop"):
            yield f"{type(thing).__name__}.{name}", getattr(thing, name)


def arguments(call: Callable[..., Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield arguments of which one, which is named, is wrong."""
    parameters = inspect.signature(call).parameters
    sound = {
        name: SOUND[name]
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
    }
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        for wrong in WRONG:
            yield name, {**sound, name: wrong}, wrong


async def outcome(call: Callable[..., Any], given: dict[str, Any]) -> BaseException | None:
    try:
        async with asyncio.timeout(0.02):  # what waits has been accepted
            result = call(**given)
            if inspect.isawaitable(result):
                result = await result
            if isinstance(result, asyncio.Future):
                await result
            if hasattr(result, "__aiter__"):
                async for _ in result:
                    break
    except TimeoutError:
        return None
    except Exception as error:
        return error
    return None


def constructors() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "AsyncClient", eruca.AsyncClient
    yield "Client", eruca.Client
    yield "Message", message
    yield "Message.json", eruca.Message.json
    yield "Inbox", Inbox
    yield "AsyncInbox", AsyncInbox
    yield "sql", eruca.sql
    yield "instrument", otel.instrument


def message(  # as type checkers see it
    topic: Any,  # noqa: ANN401
    body: Any,  # noqa: ANN401
    *,
    keys: Any = (),  # noqa: ANN401
    tag: Any = None,  # noqa: ANN401
    properties: Any = None,  # noqa: ANN401
    sharding_key: Any = None,  # noqa: ANN401
    message_id: Any = None,  # noqa: ANN401
    flag: Any = 0,  # noqa: ANN401
    deliver_at: Any = None,  # noqa: ANN401
    delay_seconds: Any = None,  # noqa: ANN401
    delay_level: Any = None,  # noqa: ANN401
) -> eruca.Message:
    return eruca.Message(
        topic,
        body,
        keys=keys,
        tag=tag,
        properties=properties,
        sharding_key=sharding_key,
        message_id=message_id,
        flag=flag,
        deliver_at=deliver_at,
        delay_seconds=delay_seconds,
        delay_level=delay_level,
    )


async def test_every_call_refuses_nonsense_with_an_error_of_ours_that_names_it(
    client: eruca.AsyncClient,
) -> None:
    faults: list[str] = []
    count = 0
    calls = itertools.chain(constructors(), *map(public_calls, made(client)))
    for title, call in calls:
        for name, given, wrong in arguments(call):
            if (title, name) in ANYTHING:
                continue
            count += 1
            error = await outcome(call, given)
            where = f"{title}({name}={wrong!r:.20})"
            if error is not None and not isinstance(error, ErucaError):
                faults.append(f"{where}: {type(error).__name__}: {error}"[:160])
            elif wrong is NEVER and not isinstance(error, ValidationError):
                faults.append(f"{where}: not refused but {error!r}"[:160])
            elif wrong is NEVER and name not in str(error):
                faults.append(f"{where}: not named by {error!r}"[:160])
    assert count > 5_000
    assert faults == []
