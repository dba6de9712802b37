"""An ordered producer that sends ahead, without a network: order, failures, earlier brokers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse, NotConnectedError, PipeLostError
from eruca.aio.sending.bulk_send import BULK_IN_FLIGHT_MAX
from eruca.contract.errors import (
    ErucaError,
    LaneGapError,
    MalformedBatchError,
    OverloadedError,
    TransportError,
)
from eruca.contract.records import Buffer
from eruca.contract.wire import LanePosition, batch_position
from eruca.core.producing.send_ahead import AHEAD_BYTES_MAX
from eruca_broker.core.batches.lanes import Lanes
from support.loop_clock import LoopClock, moved_clock
from support.scripted_transport import Request, problem_answer, receipt_answer
from support.sending_clients import bodies, client_of, message
from support.waiting import until

pytestmark = pytest.mark.anyio

SMALL = eruca.Batching(count_max=3, linger_ms=0)
SECONDS = 60.0


class LaneBroker:
    """A broker with lanes, and its connections: *fault* returns the error of a request, if any."""

    def __init__(self, *, knows_lanes: bool = True, seed: int | None = None) -> None:
        self.log: list[bytes] = []
        self.positions: list[LanePosition | None] = []
        self.under_way = 0
        self.most_under_way = 0
        self._knows_lanes = knows_lanes
        self._random = None if seed is None else random.Random(seed)
        self._lanes = Lanes()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, request: Request) -> HttpResponse:
        return await self._serve(request, self._arrive(request))

    def _fault(self) -> ErucaError | str | None:
        if self._random is None:
            return None
        faults: list[ErucaError | str | None] = [
            OverloadedError("too much", retry_after_seconds=0.001),
            "lost before",
            "lost after",
            "forget",
        ]
        return self._random.choice([*faults, *[None] * 12])

    def _arrive(self, request: Request) -> HttpResponse | ErucaError:
        """Store a batch or refuse it, when it arrives."""
        position = batch_position(request.body)
        self.positions.append(position)
        fault = self._fault()
        if isinstance(fault, ErucaError):
            return problem_answer(fault)
        if fault == "lost before":
            return TransportError("the connection was lost")
        if fault == "forget":
            self._lanes = Lanes()
        if position is not None:
            if not self._knows_lanes:
                return problem_answer(MalformedBatchError("expected b'ERB1', found b'ERB2'"))
            try:
                self._lanes.check(position)
            except LaneGapError as error:
                return problem_answer(error)
            self._lanes.accept(position)
        self.log += bodies(request)
        if fault == "lost after":
            return TransportError("the connection was lost")
        return receipt_answer(request)

    async def _serve(self, _: Request, outcome: HttpResponse | ErucaError) -> HttpResponse:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
        finally:
            self.under_way -= 1
        if isinstance(outcome, ErucaError):
            raise outcome
        return outcome

    def pipe(self) -> Pipe:
        return Pipe(self)


class Pipe:
    """One connection: requests arrive in order; once one is lost, so is the connection."""

    def __init__(self, broker: LaneBroker) -> None:
        self._broker = broker
        self._lost: asyncio.Event = asyncio.Event()
        self._url = ""

    def leads_to(self, url: str) -> bool:
        return not self._lost.is_set() and self._url in {"", url}

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
        if self._lost.is_set():
            raise PipeLostError("the connection was lost before")
        self._url = url
        outcome = self._broker._arrive(request)
        if isinstance(outcome, ErucaError):
            self._lost.set()
        answer = await self._broker._serve(request, outcome)
        if self._lost.is_set():
            raise TransportError("the connection was lost")
        return answer

    async def close(self) -> None:
        self._lost.set()


def client_with(broker: LaneBroker) -> eruca.AsyncClient:
    client, hot = client_of(broker, "a", queue_count=1)
    hot.pipe = broker.pipe
    return client


def numbers(log: Sequence[bytes]) -> list[int]:
    return [int(body) for body in log]


async def test_waiting_batches_are_sent_ahead_in_their_order() -> None:
    broker = LaneBroker()
    client = client_with(broker)
    async with client, client.producer(batching=SMALL) as producer:
        await producer.send_many([message(f"{n}", sharding_key="k") for n in range(60)])

    assert numbers(broker.log) == list(range(60))
    assert broker.most_under_way == 4
    named = [position for position in broker.positions if position is not None]
    assert [position.sequence for position in named] == list(range(len(named)))
    assert len({(position.lane, position.epoch) for position in named}) == 1


LARGE: Final = "x" * (AHEAD_BYTES_MAX * 2 // 3)


def large(number: int) -> eruca.Message:
    return message(f"{number} {LARGE}", sharding_key="k")


async def test_large_batches_do_not_wait_behind_one_another_on_the_connection() -> None:
    broker = LaneBroker()
    client = client_with(broker)
    async with client, client.producer(compression_threshold_bytes=None) as producer:
        await producer.send_many([large(number) for number in range(12)])

    assert [int(body.split()[0]) for body in broker.log] == list(range(12))
    assert None not in broker.positions[-2:]
    assert broker.most_under_way == 1


class SlowBroker(LaneBroker):
    """It needs some seconds for each batch."""

    clock: LoopClock

    def _arrive(self, request: Request) -> HttpResponse | ErucaError:
        self.clock.advance(20)
        return super()._arrive(request)


async def test_the_time_limit_of_a_batch_of_many_starts_with_its_own_attempt() -> None:
    broker = SlowBroker()
    client = client_with(broker)
    producer = client.producer(
        send_timeout_seconds=30, retries_max=0, compression_threshold_bytes=None
    )
    async with client, producer:
        with moved_clock() as broker.clock:
            await producer.send_many([large(number) for number in range(12)])

    assert None not in broker.positions[-2:]
    assert len(broker.log) == 12


async def test_batches_that_wait_for_their_turn_hold_up_no_other_lane() -> None:
    broker = LaneBroker()
    client, hot = client_of(broker, "a", "b", queue_count=1)
    hot.pipe = broker.pipe
    many = eruca.Batching(count_max=1, in_flight_max=2 * BULK_IN_FLIGHT_MAX)
    async with client, client.producer(batching=many) as producer:
        here, there = (eruca.MessageQueue("orders", name, 0) for name in "ab")
        sending = asyncio.create_task(
            producer.send_many(
                [message(f"{n} {LARGE}") for n in range(3 * BULK_IN_FLIGHT_MAX)], queue=here
            )
        )
        await until(lambda: None not in broker.positions[-1:] and broker.positions)
        broker.gate.clear()
        await until(lambda: broker.under_way == 1)
        other = asyncio.create_task(producer.send_many([message("0")], queue=there))
        await until(lambda: broker.under_way == 2)
        broker.gate.set()
        await asyncio.gather(sending, other)


async def test_a_lone_sender_names_no_position() -> None:
    broker = LaneBroker()
    client = client_with(broker)
    async with client, client.producer() as producer:
        for number in range(5):
            await producer.send(message(f"{number}", sharding_key="k"))

    assert broker.positions == [None] * 5


async def test_one_batch_at_a_time_if_the_program_says_so() -> None:
    broker = LaneBroker()
    client = client_with(broker)
    batching = eruca.Batching(count_max=3, in_flight_max=1)
    async with client, client.producer(batching=batching) as producer:
        await producer.send_many([message(f"{n}", sharding_key="k") for n in range(30)])

    assert broker.most_under_way == 1
    assert set(broker.positions) == {None}


async def test_an_idempotent_producer_sends_one_batch_at_a_time() -> None:
    broker = LaneBroker()
    client = client_with(broker)
    async with client, client.producer(batching=SMALL, idempotent=True) as producer:
        await producer.send_many([message(f"{n}", sharding_key="k") for n in range(30)])

    assert broker.most_under_way == 1
    assert set(broker.positions) == {None}


async def test_a_broker_that_knows_no_lanes_gets_one_batch_at_a_time() -> None:
    broker = LaneBroker(knows_lanes=False)
    client = client_with(broker)
    async with client, client.producer(batching=SMALL, retries_max=0) as producer:
        await producer.send_many([message(f"{n}", sharding_key="k") for n in range(60)])

    assert numbers(broker.log) == list(range(60))
    assert broker.most_under_way == 1
    assert len([position for position in broker.positions if position is not None]) == 1


class Pipes:
    """A client's connections of their own, of a kind, and how many were made."""

    def __init__(self, broker: LaneBroker, kind: type[Pipe], *, count_max: int = 1_000) -> None:
        self.made: list[Pipe] = []
        self._broker = broker
        self._kind = kind
        self._count_max = count_max

    def __call__(self) -> Pipe | None:
        if len(self.made) >= self._count_max:
            return None
        self.made.append(self._kind(self._broker))
        return self.made[-1]


def client_with_pipes(broker: LaneBroker, pipes: Pipes) -> eruca.AsyncClient:
    client, hot = client_of(broker, "a", queue_count=1)
    hot.pipe = pipes
    return client


class Unopened(Pipe):
    """No connection beside the pooled ones can be made."""

    async def request(self, *_: object, **__: object) -> HttpResponse:
        self._lost.set()
        raise NotConnectedError("refused")


class OneTooMany(Pipe):
    """The broker refuses the connection."""

    async def request(self, *_: object, **__: object) -> HttpResponse:
        if self._lost.is_set():
            raise PipeLostError("the connection was lost before")
        self._lost.set()
        return problem_answer(OverloadedError("too many connections", retry_after_seconds=0.001))


class OneAnswer(Pipe):
    """A proxy answers the first of several requests, and then ends the connection."""

    is_used = False

    async def request(self, *args: str, body: Sequence[Buffer] = (), **more: Any) -> HttpResponse:  # noqa: ANN401
        if self._lost.is_set():
            raise PipeLostError("the connection was lost before")
        if self.is_used:
            await asyncio.sleep(0)
            self._lost.set()
            raise TransportError("the connection was lost")
        self.is_used = True
        return await super().request(*args, body=body, **more)


@pytest.mark.parametrize(
    ("kind", "retries_max", "made"), [(Unopened, 0, 1), (OneTooMany, 3, 1), (OneAnswer, 3, 2)]
)
async def test_a_connection_that_is_of_no_use_is_not_made_again_and_again(
    kind: type[Pipe], retries_max: int, made: int
) -> None:
    broker = LaneBroker()
    pipes = Pipes(broker, kind)
    client = client_with_pipes(broker, pipes)
    async with client, client.producer(batching=SMALL, retries_max=retries_max) as producer:
        await producer.send_many([message(f"{n}", sharding_key="k") for n in range(90)])

    assert list(dict.fromkeys(numbers(broker.log))) == list(range(90))
    assert len(pipes.made) == made


async def test_a_connection_that_was_lost_while_idle_costs_no_attempt() -> None:
    broker = LaneBroker()
    pipes = Pipes(broker, Pipe)
    client = client_with_pipes(broker, pipes)
    async with client, client.producer(batching=SMALL, retries_max=0) as producer:
        for start in (0, 60, 120):
            await producer.send_many(
                [message(f"{n}", sharding_key="k") for n in range(start, start + 60)]
            )
            if start == 60:
                assert len(pipes.made) == 1
                await pipes.made[0].close()

    assert numbers(broker.log) == list(range(180))
    assert len(pipes.made) == 2


async def test_after_a_failure_the_next_batch_has_a_position_without_a_connection_too() -> None:
    broker = LaneBroker()
    pipes = Pipes(broker, OneAnswer, count_max=1)
    client = client_with_pipes(broker, pipes)
    async with client, client.producer(batching=SMALL) as producer:
        await producer.send_many([message(f"{n}", sharding_key="k") for n in range(60)])

    epochs = [position.epoch for position in broker.positions if position is not None]
    assert sorted(set(epochs)) == [1, 2]
    assert epochs.count(2) == 1
    assert broker.positions[-1] is None


class Strict(LaneBroker):
    """It refuses certain content."""

    def _arrive(self, request: Request) -> HttpResponse | ErucaError:
        if b"bad" in bodies(request):
            return problem_answer(MalformedBatchError("bad"))
        return super()._arrive(request)


async def test_refused_content_does_not_show_that_a_broker_knows_no_positions() -> None:
    broker = Strict()
    client = client_with(broker)
    async with client, client.producer(batching=SMALL) as producer:
        texts = [*map(str, range(60)), "bad", *map(str, range(60, 120))]
        with pytest.raises(eruca.PartialSendError) as partial:
            await producer.send_many([message(text, sharding_key="k") for text in texts])

    assert 60 in partial.value.failed_indexes
    assert None not in broker.positions[-5:]


class Miscounting(LaneBroker):
    """Its first receipt is wrong."""

    is_right = False

    def _arrive(self, request: Request) -> HttpResponse | ErucaError:
        answer = super()._arrive(request)
        if self.is_right:
            return answer
        self.is_right = True
        return receipt_answer(request, count=1_000)


async def test_a_wrong_receipt_fails_the_attempt_in_an_ordered_lane_too() -> None:
    broker = Miscounting()
    client = client_with(broker)
    async with client, client.producer(batching=SMALL, retries_max=1) as producer:
        await producer.send_many([message(f"{n}", sharding_key="k") for n in range(9)])

    assert numbers(broker.log) == [0, 1, 2, *range(9)]


async def test_what_is_under_way_when_the_producer_closes_is_said_to_be_unknown() -> None:
    broker = LaneBroker()
    client = client_with(broker)
    async with client:
        producer = client.producer(batching=SMALL)
        sending = asyncio.create_task(
            producer.send_many([message(f"{n}", sharding_key="k") for n in range(300)])
        )
        await until(lambda: broker.most_under_way == 4)
        broker.gate.clear()
        await until(lambda: broker.under_way == 4)
        await producer.close(timeout_seconds=0)

        with pytest.raises(eruca.ErucaError):
            await sending
        broker.gate.set()


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_fails_first_copies_and_last_copies_are_in_order(seed: int) -> None:
    broker = LaneBroker(seed=seed)
    client = client_with(broker)
    async with (
        client,
        client.producer(
            batching=SMALL, retries_max=1_000, send_timeout_seconds=SECONDS
        ) as producer,
    ):
        futures = []
        for number in range(80):
            futures.append(await producer.submit(message(f"{number}", sharding_key="k")))
            if number % 7 == 0:
                await asyncio.sleep(0)
        results = await asyncio.gather(*futures)

    assert len(results) == 80
    stored = numbers(broker.log)
    assert list(dict.fromkeys(stored)) == list(range(80))
    assert list(dict.fromkeys(reversed(stored))) == list(reversed(range(80)))
