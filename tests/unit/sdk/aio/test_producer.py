"""The producer's machinery without a network: batches, retries, back-pressure, partial failures."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType, FrameType

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.aio.sending.bulk_send import BULK_IN_FLIGHT_MAX
from eruca.contract.errors import DiskFullError, ErucaError, MalformedBatchError, ValidationError
from eruca.contract.properties import UNIQ_KEY, decode_properties
from support.loop_clock import moved_clock
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    live_brokers,
    problem_answer,
    receipt_answer,
    route_of,
)
from support.waiting import stays, until

pytestmark = pytest.mark.anyio

Broker = Callable[[Request], Awaitable[HttpResponse]]


async def storing(request: Request) -> HttpResponse:
    """Answer as a broker that stores everything."""
    return receipt_answer(request)


class Gate:
    """A broker that lets batches through one by one."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Request, asyncio.Future[HttpResponse]]] = []

    async def __call__(self, request: Request) -> HttpResponse:
        future: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self.waiting.append((request, future))
        return await future

    def holds(self, count: int) -> bool:
        return len(self.waiting) == count

    def open(self) -> None:
        request, future = self.waiting.pop(0)
        future.set_result(receipt_answer(request))


def client_of(
    broker: Broker, *broker_names: str, queue_count: int = 2
) -> tuple[eruca.AsyncClient, ScriptedTransport]:
    names = broker_names or ("a", "b")

    async def name_server(request: Request) -> HttpResponse:
        if "wait_seconds" in request.target:
            await asyncio.Event().wait()  # nothing changes
        topic = request.target.split("/")[3]
        return json_answer(route_of(topic, *names, queue_count=queue_count), etag='"1"')

    hot = ScriptedTransport(broker)
    client = eruca.AsyncClient(
        "http://namesrv", hot_transport=hot, transport=ScriptedTransport(name_server)
    )
    return client, hot


def message(text: str = "x", **fields: str) -> eruca.Message:
    return eruca.Message("orders", text, **fields)  # type: ignore[arg-type]


def bodies(request: Request) -> list[bytes]:
    return [record.body for record in request.records]


# Batches.


async def test_what_is_sent_in_one_turn_of_the_loop_leaves_in_one_batch() -> None:
    client, hot = client_of(storing)
    async with client, client.producer() as producer:
        await asyncio.gather(*(producer.send(message(str(n))) for n in range(5)))

    assert [bodies(request) for request in hot.requests] == [[b"0", b"1", b"2", b"3", b"4"]]


async def test_sending_leaves_nothing_for_the_cycle_collector() -> None:
    client, _ = client_of(storing)
    async with client, client.producer() as producer:
        await producer.send(message())
        gc.collect()
        gc.disable()
        try:
            await asyncio.gather(*(producer.send(message(str(n))) for n in range(100)))
            await producer.send_many([message(str(n)) for n in range(100)])
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            assert [repr(left)[:200] for left in gc.garbage if is_of_sending(left)] == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


def is_of_sending(left: object) -> bool:
    """Return whether garbage is the SDK's, not that of a socket from an earlier test."""
    if isinstance(left, BaseException | asyncio.Future | FrameType | CoroutineType):
        return True
    return str(getattr(left, "__module__", "")).startswith("eruca")


async def test_a_full_batch_leaves_and_another_begins() -> None:
    client, hot = client_of(storing)
    async with client, client.producer(batching=eruca.Batching(count_max=3)) as producer:
        await asyncio.gather(*(producer.send(message(str(n))) for n in range(8)))

    assert sorted(len(request.records) for request in hot.requests) == [2, 3, 3]


async def test_a_batch_has_a_largest_size_and_a_larger_message_travels_alone() -> None:
    client, hot = client_of(storing)
    async with (
        client,
        client.producer(
            batching=eruca.Batching(bytes_max=3_000), compression_threshold_bytes=None
        ) as producer,
    ):
        sizes = [1_000, 1_000, 1_000, 9_000, 1_000]
        await asyncio.gather(*(producer.send(message("x" * size)) for size in sizes))

    assert sorted([len(b) for b in bodies(request)] for request in hot.requests) == [
        [1_000],
        [1_000],
        [1_000, 1_000],
        [9_000],
    ]


async def test_while_a_batch_is_under_way_the_next_fills_until_it_is_back() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client, client.producer(batching=eruca.Batching(linger_ms=60_000)) as producer:
        sends = [asyncio.create_task(producer.send(message("0")))]
        await until(lambda: gate.waiting)
        for number in range(1, 4):
            sends.append(asyncio.create_task(producer.send(message(str(number)))))
            await asyncio.sleep(0)
        assert len(gate.waiting) == 1

        gate.open()
        await until(lambda: gate.waiting)

        assert bodies(gate.waiting[0][0]) == [b"1", b"2", b"3"]
        gate.open()
        await asyncio.gather(*sends)


async def test_after_the_linger_time_a_batch_leaves_beside_others() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(linger_ms=1, in_flight_max=2)) as producer,
    ):
        sends = []
        for number in range(2):
            sends.append(asyncio.create_task(producer.send(message(str(number)))))
            await until(partial(gate.holds, number + 1))
        sends.append(asyncio.create_task(producer.send(message("2"))))
        await stays(lambda: len(gate.waiting) == 2)

        assert [bodies(request) for request, _ in gate.waiting] == [[b"0"], [b"1"]]
        gate.open()
        await until(lambda: len(gate.waiting) == 2)
        assert bodies(gate.waiting[-1][0]) == [b"2"]
        while gate.waiting:
            gate.open()
        await asyncio.gather(*sends)


async def test_of_one_queue_only_one_batch_is_under_way() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(linger_ms=0, in_flight_max=8)) as producer,
    ):
        sends = [asyncio.create_task(producer.send(message("0", sharding_key="k")))]
        await until(lambda: gate.waiting)
        for text in ("1", "2"):
            sends.append(asyncio.create_task(producer.send(message(text, sharding_key="k"))))
        await stays(lambda: len(gate.waiting) == 1)

        gate.open()
        await until(lambda: gate.waiting)

        assert [bodies(request) for request, _ in gate.waiting] == [[b"1", b"2"]]
        gate.open()
        await asyncio.gather(*sends)


async def test_flushing_does_not_wait_for_company() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(linger_ms=60_000, in_flight_max=2)) as producer,
    ):
        await producer.submit(message("0"))
        await until(lambda: gate.waiting)
        await producer.submit(message("1"))
        flushing = asyncio.create_task(producer.flush())
        await until(lambda: len(gate.waiting) == 2)

        assert not flushing.done()
        gate.open()
        gate.open()
        await flushing


async def test_a_flush_that_takes_too_long_says_so() -> None:
    client, _ = client_of(Gate())
    async with client:
        producer = client.producer()
        sent = await producer.submit(message())
        with pytest.raises(eruca.TimeoutExpiredError):
            await producer.flush(timeout_seconds=0.01)
        await producer.close(drain=False)
        assert isinstance(sent.exception(), eruca.ClosedError)


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
    asked: dict[str, float] = {}  # when each was to be asked again, by the loop's clock
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


# Many at once.


async def test_if_some_batches_fail_the_error_tells_for_each_message() -> None:
    async def broker(request: Request) -> HttpResponse:
        if b"3" in bodies(request):
            return problem_answer(eruca.ValidationError("three"))
        return receipt_answer(request)

    client, _ = client_of(broker)
    async with client, client.producer(batching=eruca.Batching(count_max=2)) as producer:
        with pytest.raises(eruca.PartialSendError, match="2 of 6 messages") as partial:
            await producer.send_many([message(str(n)) for n in range(6)])

    assert partial.value.failed_indexes == [2, 3]
    assert [type(outcome).__name__ for outcome in partial.value.outcomes] == [
        "SendResult",
        "SendResult",
        "ValidationError",
        "ValidationError",
        "SendResult",
        "SendResult",
    ]


async def test_if_nothing_was_stored_the_error_is_the_first_batchs() -> None:
    async def broker(_: Request) -> HttpResponse:
        return problem_answer(eruca.ValidationError("no"))

    client, _ = client_of(broker)
    async with client, client.producer(batching=eruca.Batching(count_max=2)) as producer:
        with pytest.raises(eruca.ValidationError):
            await producer.send_many([message(str(n)) for n in range(6)])


async def test_only_some_batches_of_many_are_under_way_at_a_time() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(count_max=1, in_flight_max=3)) as producer,
    ):
        sending = asyncio.create_task(producer.send_many([message(str(n)) for n in range(9)]))
        for left in range(9, 0, -1):
            await until(partial(gate.holds, min(left, 3)))
            await stays(partial(gate.holds, min(left, 3)), for_seconds=0.01)
            gate.open()
        assert len(await sending) == 9


def keyed(count: int) -> list[eruca.Message]:
    """Return messages of so many sharding keys."""
    return [message(str(n), sharding_key=f"key-{n}") for n in range(count)]


async def test_of_many_queues_only_some_are_sent_to_at_a_time() -> None:
    gate = Gate()
    client, _ = client_of(gate, queue_count=500)
    async with client, client.producer() as producer:
        sending = asyncio.create_task(producer.send_many(keyed(2_000)))
        await until(partial(gate.holds, BULK_IN_FLIGHT_MAX))
        await stays(partial(gate.holds, BULK_IN_FLIGHT_MAX), for_seconds=0.05)
        while not sending.done():
            while gate.waiting:
                gate.open()
            await asyncio.sleep(0)
        assert len(await sending) == 2_000


async def test_many_batches_take_longer_together_than_each_of_them_may() -> None:
    turns = itertools.count()

    async def broker(request: Request) -> HttpResponse:
        if next(turns) % BULK_IN_FLIGHT_MAX == 0:
            clock.advance(20)  # seconds that a slow machine needs for as many
        return receipt_answer(request)

    client, hot = client_of(broker, queue_count=500)
    async with client, client.producer(send_timeout_seconds=30) as producer:
        with moved_clock() as clock:
            results = await producer.send_many(keyed(2_000))

    assert len(results) == 2_000
    assert len(hot.requests) > 10 * BULK_IN_FLIGHT_MAX


async def test_where_nothing_is_stored_for_a_time_the_rest_of_many_fails_untried() -> None:
    client, hot = client_of(Gate(), queue_count=500)
    async with client, client.producer(send_timeout_seconds=30, retries_max=0) as producer:
        with moved_clock() as clock:
            sending = asyncio.create_task(producer.send_many(keyed(2_000)))
            await until(lambda: len(hot.requests) == BULK_IN_FLIGHT_MAX)
            clock.advance(40)
            with pytest.raises(eruca.SendFailedError):
                await sending

    assert len(hot.requests) == BULK_IN_FLIGHT_MAX


async def test_of_many_the_error_says_of_what_was_not_tried_that_it_was_not() -> None:
    turns = itertools.count()

    async def broker(request: Request) -> HttpResponse:
        if next(turns):
            await asyncio.Event().wait()  # only the first is answered
        return receipt_answer(request)

    client, hot = client_of(broker, queue_count=500)
    async with client, client.producer(send_timeout_seconds=30, retries_max=0) as producer:
        with moved_clock() as clock:
            sending = asyncio.create_task(producer.send_many(keyed(2_000)))
            await until(lambda: len(hot.requests) == BULK_IN_FLIGHT_MAX + 1)
            while not sending.done():
                clock.advance(40)
                await asyncio.sleep(0)
            with pytest.raises(eruca.PartialSendError) as partial_error:
                await sending

    details = {str(outcome) for outcome in partial_error.value.outcomes}
    assert any(detail.startswith("not tried: no batch was stored for 30 s") for detail in details)


async def test_cancelling_many_takes_back_what_has_not_left() -> None:
    gate = Gate()
    client, hot = client_of(gate)
    async with (
        client,
        client.producer(batching=eruca.Batching(count_max=1, in_flight_max=1)) as producer,
    ):
        sending = asyncio.create_task(producer.send_many([message(str(n)) for n in range(9)]))
        await until(lambda: gate.waiting)
        sending.cancel()
        await asyncio.wait([sending])
        gate.open()
        await producer.flush()

    assert (sending.cancelled(), len(hot.requests)) == (True, 1)


# Back-pressure.


async def test_sending_waits_while_the_buffer_is_full() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client, client.producer(buffer_bytes_max=1_000) as producer:
        first = await producer.submit(message("x" * 700))
        await until(lambda: gate.waiting)
        waiting = [asyncio.create_task(producer.submit(message("y" * 700))) for _ in range(2)]
        await stays(lambda: not any(task.done() for task in waiting))

        gate.open()
        await first
        await until(lambda: waiting[0].done())
        assert not waiting[1].done()

        await until(lambda: gate.waiting)
        gate.open()
        await until(lambda: waiting[1].done())
        await until(lambda: gate.waiting)
        gate.open()


async def test_who_gives_up_waiting_for_room_does_not_hold_up_others() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client, client.producer(buffer_bytes_max=1_000) as producer:
        await producer.submit(message("x" * 700))
        await until(lambda: gate.waiting)
        impatient, patient = (
            asyncio.create_task(producer.submit(message("y" * 700))) for _ in range(2)
        )
        await asyncio.sleep(0)
        impatient.cancel()
        gate.open()
        await until(lambda: patient.done())
        await until(lambda: gate.waiting)
        gate.open()

    assert impatient.cancelled()


async def test_closing_refuses_those_who_wait_for_room() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client:
        producer = client.producer(buffer_bytes_max=1_000)
        first = await producer.submit(message("x" * 700))
        waiting = asyncio.create_task(producer.submit(message("y" * 700)))
        await until(lambda: gate.waiting)

        await producer.close(drain=False)

        for sent in (first, waiting):
            with pytest.raises(eruca.ClosedError):
                await sent


async def test_of_many_that_closing_cuts_short_the_error_tells_which_were_stored() -> None:
    gate = Gate()
    client, _ = client_of(gate)
    async with client:
        producer = client.producer(buffer_bytes_max=1_000, batching=eruca.Batching(count_max=1))
        sending = asyncio.create_task(
            producer.send_many([message(text * 700) for text in ("x", "y")])
        )
        await until(lambda: gate.waiting)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        gate.open()

        with pytest.raises(eruca.PartialSendError) as raised:
            await sending
        await closing

    stored, refused = raised.value.outcomes
    assert isinstance(stored, eruca.SendResult)
    assert isinstance(refused, eruca.ClosedError)


async def test_of_what_is_under_way_closing_does_not_claim_that_it_was_not_stored() -> None:
    gate = Gate()
    client, _ = client_of(gate, "a", queue_count=1)
    async with client:
        producer = client.producer(batching=eruca.Batching(count_max=1, in_flight_max=1))
        under_way, waiting = [await producer.submit(message(text)) for text in ("x", "y")]
        await until(lambda: gate.waiting)

        await producer.close(drain=False)

        with pytest.raises(eruca.ClosedError, match="may have been stored"):
            await under_way
        with pytest.raises(eruca.ClosedError, match="before the message was sent"):
            await waiting


# Routes.


@pytest.mark.parametrize("sharding_key", [None, "order-7"])
@pytest.mark.parametrize("is_many", [False, True])
def test_another_event_loop_is_refused(*, sharding_key: str | None, is_many: bool) -> None:
    client, _ = client_of(storing)
    producer = client.producer()

    async def use() -> None:
        one = eruca.Message("orders", "x", sharding_key=sharding_key)
        async with asyncio.timeout(20):
            await (producer.send_many([one]) if is_many else producer.send(one))

    asyncio.run(use())
    for _ in range(2):
        with pytest.raises(eruca.ClosedError, match="another event loop"):
            asyncio.run(use())


async def test_a_topic_nobody_knows_is_an_error_that_says_so() -> None:
    async def name_server(request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return json_answer({"brokers": []})
        return problem_answer(eruca.TopicNotFoundError("no topic orders"))

    client = eruca.AsyncClient("http://namesrv", transport=ScriptedTransport(name_server))
    async with client, client.producer() as producer:
        with pytest.raises(eruca.TopicNotFoundError, match="eruca topic create"):
            await producer.send(message())


async def test_a_name_server_that_has_just_started_keeps_no_topic_from_being_created() -> None:
    async def name_server(request: Request) -> HttpResponse:
        if request.target != "/v1/brokers":
            return problem_answer(eruca.TopicNotFoundError("no topic orders"))
        if request.url == ignorant:
            return json_answer(live_brokers())
        return json_answer(live_brokers("a"))

    client = eruca.AsyncClient(
        "http://one;http://another",
        hot_transport=ScriptedTransport(storing),
        transport=ScriptedTransport(name_server),
    )
    ignorant = client.context.name_servers.current_url
    async with client, client.producer() as producer:
        result = await producer.send(message())

    assert result.queue.broker_name == "a"


@pytest.mark.parametrize("refusal", [eruca.TopicNotFoundError, eruca.PermissionDeniedError])
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_a_route_that_has_changed_is_fetched_when_a_broker_refuses(
    refusal: type[ErucaError], *, is_idempotent: bool
) -> None:
    """The topic moved from broker a to broker b, which the client does not know yet."""
    fetches = 0

    async def name_server(request: Request) -> HttpResponse:
        nonlocal fetches
        if "wait_seconds" in request.target:
            await asyncio.Event().wait()
        fetches += 1
        return json_answer(route_of("orders", "a" if fetches == 1 else "b"), etag=f'"{fetches}"')

    async def broker(request: Request) -> HttpResponse:
        if request.url == "http://a":
            return problem_answer(refusal("moved"))
        return receipt_answer(request)

    client = eruca.AsyncClient(
        "http://namesrv",
        hot_transport=ScriptedTransport(broker),
        transport=ScriptedTransport(name_server),
    )
    async with client, client.producer(idempotent=is_idempotent) as producer:
        result = await producer.send(message())

    assert result.queue.broker_name == "b"


@pytest.mark.parametrize("loss", [eruca.TransportError, eruca.TimeoutExpiredError])
async def test_what_may_be_stored_is_not_said_to_have_no_route(loss: type[ErucaError]) -> None:
    """The one broker stores, and leaves the routes; its answer is lost."""
    has_left = asyncio.Event()

    def is_known_to_have_left() -> bool:
        view = client.context.routes.cached_publish_view("orders")
        return view is not None and not view.queues

    async def name_server(request: Request) -> HttpResponse:
        if "wait_seconds" in request.target:
            await (asyncio.Event() if has_left.is_set() else has_left).wait()
        names = () if has_left.is_set() else ("a",)
        return json_answer(route_of("orders", *names), etag=f'"{len(names)}"')

    async def broker(_: Request) -> HttpResponse:
        has_left.set()
        await until(is_known_to_have_left)
        raise loss("cut")

    client = eruca.AsyncClient(
        "http://namesrv",
        hot_transport=ScriptedTransport(broker),
        transport=ScriptedTransport(name_server),
    )
    async with client, client.producer() as producer:
        with pytest.raises(eruca.SendFailedError) as failed:
            await producer.send(message())

    kinds = [type(error) for _, error in failed.value.attempts]
    assert kinds == [loss, eruca.NoRouteError, eruca.NoRouteError]


async def test_a_route_that_does_not_come_is_not_awaited_beyond_the_deadline() -> None:
    has_told = False

    async def name_server(_: Request) -> HttpResponse:
        nonlocal has_told
        if has_told:
            await asyncio.Event().wait()
        has_told = True
        return json_answer(route_of("orders", "a"), etag='"1"')

    async def broker(_: Request) -> HttpResponse:
        return problem_answer(eruca.TopicNotFoundError("moved"))

    client = eruca.AsyncClient(
        "http://namesrv",
        hot_transport=ScriptedTransport(broker),
        transport=ScriptedTransport(name_server),
        timeout_seconds=600,
    )
    async with client, client.producer(send_timeout_seconds=0.05) as producer:
        with pytest.raises(eruca.SendFailedError, match="moved"):
            await producer.send(message())


@pytest.mark.parametrize("sharding_key", [None, "k"])
@pytest.mark.parametrize("sends_many", [False, True])
async def test_no_name_server_at_all_is_an_error_within_the_deadline(
    sharding_key: str | None, *, sends_many: bool
) -> None:
    async def silent(_: Request) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    client = eruca.AsyncClient(
        "http://namesrv", transport=ScriptedTransport(silent), timeout_seconds=600
    )
    sent = eruca.Message("orders", "x", sharding_key=sharding_key)
    async with client, client.producer(send_timeout_seconds=0.05) as producer:
        with pytest.raises(eruca.TimeoutExpiredError, match="route of orders"):
            await (producer.send_many([sent]) if sends_many else producer.send(sent))


@pytest.mark.parametrize("given", [None, "text", b"bytes", 7])
async def test_what_is_no_message_is_refused_by_what_it_is(given: object) -> None:
    client, hot = client_of(storing)
    async with client, client.producer() as producer:
        for send in (producer.send, producer.submit, producer.send_oneway):
            with pytest.raises(ValidationError, match="message"):
                await send(given)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match="message"):
            await producer.send_many([message(), given])  # type: ignore[list-item]

    assert hot.requests == []


async def test_a_number_is_no_queue_to_send_to() -> None:
    client, hot = client_of(storing)
    async with client, client.producer() as producer:
        for send in (producer.send, producer.submit):
            with pytest.raises(
                ValidationError,
                match=r"expected a MessageQueue, found 3|3 is not an object of eruca",
            ):
                await send(message(), queue=3)  # type: ignore[arg-type]
        with pytest.raises(
            ValidationError, match=r"expected a MessageQueue, found 3|3 is not an object of eruca"
        ):
            await producer.send_many([message(), message()], queue=3)  # type: ignore[arg-type]

    assert hot.requests == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("buffer_bytes_max", 0, "buffer_bytes_max: expected 1 or more, found 0"),
        (
            "compression_threshold_bytes",
            -1,
            "compression_threshold_bytes: expected 0 or more, found -1",
        ),
        ("retries_max", -1, "retries_max: expected 0 or more, found -1"),
        (
            "send_timeout_seconds",
            float("nan"),
            "send_timeout_seconds: expected seconds above 0, found nan",
        ),
    ],
)
async def test_a_number_that_means_nothing_is_refused_by_name(
    option: str, value: float, said: str
) -> None:
    async with eruca.AsyncClient() as client:
        with pytest.raises(ValidationError, match=said):
            client.producer(**{option: value})  # type: ignore[arg-type]
