"""The producer without a network: failures, retries and deadlines."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import DiskFullError, ErucaError, MalformedBatchError
from eruca.contract.properties import UNIQ_KEY, decode_properties
from support.loop_clock import moved_clock
from support.scripted_transport import Request, problem_answer, receipt_answer
from support.sending_clients import Gate, bodies, client_of, message, storing

pytestmark = pytest.mark.anyio


# Retries.


async def test_a_broker_that_fails_is_left_for_another_with_the_same_ids() -> None:
    async def broker(request: Request) -> HttpResponse:
        if len(hot.requests) == 1:
            raise eruca.TransportError("cut")
        return receipt_answer(request)

    client, hot = client_of(broker)
    async with client, client.producer() as producer:
        result = await producer.send(message())

    first, second = hot.requests
    assert first.url != second.url
    assert result.queue.broker_name == second.url.removeprefix("http://")
    ids = {request.records[0].property_map()["UNIQ_KEY"] for request in hot.requests}
    assert ids == {result.message_id}


async def test_what_is_no_broker_and_has_ones_address_is_left_for_another() -> None:
    async def broker(request: Request) -> HttpResponse:
        if len(hot.requests) == 1:
            return HttpResponse(404, {"content-type": "text/html"}, b"<h1>Not found</h1>")
        return receipt_answer(request)

    client, hot = client_of(broker)
    async with client, client.producer() as producer:
        await producer.send(message())

    first, second = hot.requests
    assert first.url != second.url


async def test_a_broker_that_hangs_leaves_time_for_another() -> None:
    async def broker(request: Request) -> HttpResponse:
        if request.url == "http://a":
            clock.advance(request.timeout)
            await asyncio.Event().wait()
        return receipt_answer(request)

    client, hot = client_of(broker)
    async with client, client.producer(send_timeout_seconds=60) as producer:
        with moved_clock() as clock:
            results = [await producer.send(message()) for _ in range(4)]

    assert {result.queue.broker_name for result in results} == {"b"}
    at_a = [request.timeout for request in hot.requests if request.url == "http://a"]
    assert at_a
    assert max(at_a) <= 30


async def test_with_latency_fault_tolerance_a_failed_broker_is_avoided_from_then_on() -> None:
    async def broker(request: Request) -> HttpResponse:
        if request.url == "http://a":
            raise eruca.TransportError("cut")
        return receipt_answer(request)

    client, hot = client_of(broker)
    async with client, client.producer(latency_fault=True) as producer:
        for _ in range(20):
            await producer.send(message())
        (health,) = [h for h in producer.broker_health() if h.broker_name == "a"]

    assert sum(request.url == "http://a" for request in hot.requests) == 1
    assert (health.condition, health.is_reachable) == ("isolated", False)


async def test_without_it_every_turn_of_the_broker_is_tried() -> None:
    async def broker(request: Request) -> HttpResponse:
        if request.url == "http://a":
            raise eruca.TransportError("cut")
        return receipt_answer(request)

    client, hot = client_of(broker)
    async with client, client.producer() as producer:
        for _ in range(20):
            await producer.send(message())

    assert sum(request.url == "http://a" for request in hot.requests) > 1


async def test_when_every_attempt_fails_the_error_tells_each() -> None:
    async def broker(request: Request) -> HttpResponse:
        raise eruca.TransportError(f"{request.url} is cut")

    client, hot = client_of(broker)
    async with client, client.producer(retries_max=2) as producer:
        with pytest.raises(eruca.SendFailedError, match="3 attempts failed") as failed:
            await producer.send(message())

    names = [request.url.removeprefix("http://") for request in hot.requests]
    assert [name for name, _ in failed.value.attempts] == names
    assert names[0] != names[1]
    assert all(isinstance(error, eruca.TransportError) for _, error in failed.value.attempts)


@pytest.mark.parametrize("fields", [{"sharding_key": "k"}, {}], ids=["sharding key", "one broker"])
async def test_where_no_other_broker_will_do_the_same_is_tried_again(
    fields: dict[str, str],
) -> None:
    async def broker(request: Request) -> HttpResponse:
        if len(hot.requests) < 3:
            return problem_answer(DiskFullError("full"))
        return receipt_answer(request)

    client, hot = client_of(broker, *(("a", "b") if fields else ("a",)), queue_count=1)
    async with client, client.producer() as producer:
        await producer.send(message(**fields))

    assert len({request.url for request in hot.requests}) == 1
    assert len(hot.requests) == 3


async def test_brokers_that_ask_for_patience_are_left_alone_for_as_long() -> None:
    asked: dict[str, float] = {}  # when each was due again, by the loop's clock
    early: list[str] = []

    async def broker(request: Request) -> HttpResponse:
        now = asyncio.get_running_loop().time()
        if request.url not in asked:
            asked[request.url] = now + (seconds := 0.2 if request.url == "http://a" else 600.0)
            return problem_answer(eruca.OverloadedError("busy", retry_after_seconds=seconds))
        early.extend([request.url] if now < asked[request.url] - 0.01 else [])
        return receipt_answer(request)

    client, _ = client_of(broker)
    async with client, client.producer() as producer:
        result = await producer.send(message())

    assert (result.queue.broker_name, early) == ("a", [])


@pytest.mark.parametrize(
    "error", [eruca.ValidationError("no"), eruca.ConflictError("no"), MalformedBatchError("no")]
)
async def test_a_refusal_is_raised_as_it_is_and_not_repeated(error: ErucaError) -> None:
    async def broker(_: Request) -> HttpResponse:
        return problem_answer(error)

    client, hot = client_of(broker)
    async with client, client.producer() as producer:
        with pytest.raises(type(error), match="no") as refused:
            await producer.send(message())

    assert refused.value.request_id == "request-1"
    assert len(hot.requests) == 1


async def test_a_message_that_is_refused_takes_no_stranger_down_with_it() -> None:
    async def broker(request: Request) -> HttpResponse:
        if b"bad" in bodies(request):
            return problem_answer(eruca.ValidationError("bad message"))
        return receipt_answer(request)

    client, _ = client_of(broker)
    async with client, client.producer() as producer:
        outcomes = await asyncio.gather(
            *(producer.send(message("bad" if n == 5 else str(n))) for n in range(12)),
            return_exceptions=True,
        )

    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)] == [5]


async def test_a_batch_that_is_too_large_for_a_proxy_goes_in_parts() -> None:
    """A proxy has a limit of its own, and tells of it in its own words."""

    async def proxy(request: Request) -> HttpResponse:
        if len(request.records) > 3:
            return HttpResponse(413, {"content-type": "text/html"}, b"<h1>Entity Too Large</h1>")
        return receipt_answer(request)

    client, hot = client_of(proxy)
    async with client, client.producer() as producer:
        await asyncio.gather(*(producer.send(message(str(n))) for n in range(10)))

    sent = [bodies(request) for request in hot.requests if len(request.records) <= 3]
    assert sorted(body for batch in sent for body in batch) == [b"%d" % n for n in range(10)]


async def test_nor_does_one_that_is_given_up_while_its_batch_is_refused() -> None:
    gone: list[asyncio.Future[eruca.SendResult]] = []
    stored: dict[str, str] = {}  # bodies by unique id

    async def broker(request: Request) -> HttpResponse:
        if b"bad" in bodies(request):
            gone[0].cancel()
            return problem_answer(eruca.ValidationError("bad message"))
        for record in request.records:
            stored[decode_properties(record.properties)[UNIQ_KEY]] = record.body.decode()
        return receipt_answer(request)

    client, _ = client_of(broker)
    async with client, client.producer() as producer:
        sent = [await producer.submit(message(text)) for text in ("bad", "a", "gone", "b")]
        gone.append(sent.pop(2))
        _, *results = await asyncio.gather(*sent, return_exceptions=True)

    received = [result for result in results if isinstance(result, eruca.SendResult)]
    assert [stored[result.message_id] for result in received] == ["a", "b"]
    assert len(stored) == 2


@pytest.mark.parametrize(
    "answer",
    [
        HttpResponse(201, {}, b"not json"),
        HttpResponse(201, {}, b"{}"),
        HttpResponse(201, {}, b'{"x": "\xff"}'),
        HttpResponse(201, {}, b'{"x":' + b"[" * 100_000),
        HttpResponse(502, {"content-type": "text/html"}, b"<h1>Bad gateway</h1>"),
        HttpResponse(500, {"content-type": "application/problem+json"}, b"garbage"),
    ],
    ids=["no json", "no receipt", "no UTF-8", "no end", "a proxy's page", "a garbled problem"],
)
async def test_an_answer_that_cannot_be_read_is_a_failed_attempt(answer: HttpResponse) -> None:
    async def broker(_: Request) -> HttpResponse:
        return answer

    client, hot = client_of(broker)
    async with client, client.producer() as producer:
        with pytest.raises(eruca.ErucaError):
            await producer.send(message())

    assert len(hot.requests) == 3


async def test_a_receipt_for_another_number_of_messages_is_not_believed() -> None:
    async def broker(request: Request) -> HttpResponse:
        return receipt_answer(request, count=7)

    client, _ = client_of(broker)
    async with client, client.producer(retries_max=0) as producer:
        with pytest.raises(eruca.SendFailedError, match="expected 1 stored messages, found 7"):
            await producer.send(message())


async def test_a_timeout_of_its_own_ends_a_send_and_says_that_nothing_is_known() -> None:
    client, _ = client_of(Gate())
    async with client:
        producer = client.producer()
        with pytest.raises(eruca.TimeoutExpiredError, match="may have been stored"):
            await producer.send(message(), timeout_seconds=0.02)
        await producer.close(drain=False)


async def test_a_long_timeout_of_its_own_gives_attempts_more_time() -> None:
    client, hot = client_of(storing)
    async with client, client.producer(send_timeout_seconds=0.5) as producer:
        await producer.send(message(), timeout_seconds=60)

    assert hot.requests[0].timeout > 20
