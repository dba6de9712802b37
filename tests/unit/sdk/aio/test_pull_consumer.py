"""The pull consumer's machinery without a network: failures, pauses, limits, odd answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.aio.pulling import broker_fetcher
from eruca.contract.errors import ErucaError, QueueNotFoundError, ValidationError
from eruca.contract.records import Record, encode_record
from eruca.contract.wire import (
    PullStatus,
    encode_multi_pull_heads,
    encode_pull_head,
)
from eruca.core.consuming.pull_positions import StartPosition
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    problem_answer,
    route_of,
)
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

Broker = Callable[[Request], Awaitable[HttpResponse]]


class Queues:
    """Brokers that hold messages and answer pulls, and count what is asked of them."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], list[bytes]] = {}
        self.errors: dict[str, ErucaError] = {}
        self.min_offset = 0
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
                return HttpResponse(200, {}, multi_pull(answered))
            if not asked["wait_seconds"]:
                return HttpResponse(200, {}, multi_pull([]))
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
            return json_answer(
                {
                    "topic": "orders",
                    "queue_id": queue_id,
                    "timestamp": "2026-11-21T08:00:00Z",
                    "boundary": "lower",
                    "offset": min(self.old_count, len(stored)),
                }
            )
        if "/groups/" in request.target:
            return json_answer({"group": "g", "offsets": []})
        broker = request.url.removeprefix("http://")
        return json_answer(
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


@pytest.fixture
def queues() -> Queues:
    return Queues()


@pytest.fixture
def hot(queues: Queues) -> ScriptedTransport:
    return ScriptedTransport(queues.pull)


@pytest.fixture
async def client(queues: Queues, hot: ScriptedTransport) -> AsyncIterator[eruca.AsyncClient]:
    rest = ScriptedTransport(queues.rest)
    async with eruca.AsyncClient(
        "http://namesrv", timeout_seconds=0.5, hot_transport=hot, transport=rest
    ) as client:
        yield client


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_fetcher, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(broker_fetcher, "PAUSE_SECONDS_MAX", 0.01)


def texts(messages: list[eruca.ReceivedMessage]) -> list[str]:
    return [message.text() for message in messages]


async def test_all_queues_of_a_broker_wait_in_one_request(
    client: eruca.AsyncClient, queues: Queues, hot: ScriptedTransport
) -> None:
    async with client.pull_consumer(topics="orders") as consumer:
        await consumer.assignment()
        await until(lambda: queues.held == 2)

        assert [len(msgspec.json.decode(r.body)["queues"]) for r in hot.requests] == [2, 2]


async def test_a_queue_with_room_does_not_wait_for_a_request_that_is_held(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    async with client.pull_consumer(topics="orders", prefetch_count_max=2) as consumer:
        await consumer.assignment()
        await until(lambda: queues.held == 2)
        queues.store(0, *map(str, range(10)))
        seen: list[str] = []
        while len(seen) < 10:
            seen += texts(await consumer.poll(count_max=1, wait_seconds=20))

    assert seen == [str(number) for number in range(10)]


async def test_a_queue_that_was_paused_from_the_beginning_waits_for_no_request_once_it_is_resumed(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    paused, other = (eruca.MessageQueue("orders", "a", queue_id) for queue_id in range(2))
    async with client.pull_consumer(queues=[paused, other], start="earliest") as consumer:
        await consumer.pause(paused)
        await until(lambda: queues.held == 1)
        queues.stored["a", 0] = [b"0"]  # without waking the request, which is held for the other

        await consumer.resume(paused)
        messages = await consumer.poll(wait_seconds=20)

        assert (texts(messages), queues.held) == (["0"], 1)


async def test_no_more_is_held_ready_than_allowed(
    client: eruca.AsyncClient, queues: Queues, hot: ScriptedTransport
) -> None:
    queues.store(0, *map(str, range(1_000)))
    queues.store(1, *map(str, range(1_000)))

    async with client.pull_consumer(topics="orders", prefetch_count_max=10) as consumer:
        await consumer.poll(count_max=1, wait_seconds=20)
        for _ in range(50):
            await asyncio.sleep(0)
        fetched = sum(flow.count for flow in consumer._assignment.flows)

    assert fetched <= 20
    assert len(hot.requests) < 10


async def test_bytes_held_ready_are_limited_as_well(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    for queue_id in range(2):
        queues.store(queue_id, *("x" * 1_000 for _ in range(1_000)))

    async with client.pull_consumer(topics="orders", prefetch_bytes_max=50_000) as consumer:
        count = 0
        while count < 2_000:
            count += len(await consumer.poll(wait_seconds=20))
            asked = consumer._assignment._prefetch.size
            # The scripted broker heeds the count only, so that one answer may overshoot.
            assert asked == sum(flow.size for flow in consumer._assignment.flows)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage",
        multi_pull([(7, head(PullStatus.NO_NEW_MESSAGE))]),
        multi_pull([(0, b"ERP1")]),
        multi_pull([(0, head(PullStatus.FOUND, [bytes(100)]))]),
    ],
    ids=["nothing", "garbage", "a queue nobody asked for", "a cut block", "records missing"],
)
async def test_an_answer_that_cannot_be_read_is_a_failure_and_is_tried_again(
    client: eruca.AsyncClient, queues: Queues, hot: ScriptedTransport, answer: bytes
) -> None:
    bad = 4

    async def pull(request: Request) -> HttpResponse:
        nonlocal bad
        if bad:
            bad -= 1
            return HttpResponse(200, {}, answer)
        return await queues.pull(request)

    hot.answer = pull
    queues.store(0, "x")
    async with client.pull_consumer(topics="orders") as consumer:
        assert texts(await consumer.poll(wait_seconds=20)) == ["x"]


async def test_one_broker_that_fails_does_not_hold_up_the_other(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.errors["a"] = eruca.OverloadedError("busy")
    queues.store(0, "from b", broker="b")

    async with client.pull_consumer(topics="orders") as consumer:
        assert texts(await consumer.poll(wait_seconds=20)) == ["from b"]
        assert await consumer.poll(wait_seconds=0.05) == []
        assert isinstance(consumer.failures["a"], eruca.OverloadedError)

        del queues.errors["a"]
        queues.store(0, "from a", broker="a")
        assert texts(await consumer.poll(wait_seconds=20)) == ["from a"]
        assert consumer.failures == {}


async def test_a_broker_that_is_back_counts_as_such_before_it_has_messages(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.errors = {name: eruca.OverloadedError("busy") for name in "ab"}
    async with client.pull_consumer(topics="orders") as consumer:
        await consumer.assignment()
        await until(lambda: consumer.failures.keys() == {"a", "b"})

        queues.errors.clear()

        await until(lambda: not consumer.failures)
        assert await consumer.poll(wait_seconds=0.01) == []


async def test_a_broker_that_was_away_for_hours_is_still_asked_whether_it_is_back(
    client: eruca.AsyncClient,
    queues: Queues,
    hot: ScriptedTransport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_fetcher, "PAUSE_SECONDS_MAX", 0.0)
    queues.brokers = ["a"]
    queues.errors["a"] = eruca.OverloadedError("busy")
    async with client.pull_consumer(topics="orders") as consumer:
        await consumer.assignment()
        await until(lambda: len(hot.requests) > 1_100)  # 2.0**1024 is no float

        queues.errors.clear()

        await until(lambda: not consumer.failures)


async def test_threads_may_ask_for_failures_while_brokers_come_and_go(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    many = [f"b{number}" for number in range(20)]
    is_over = False

    def ask() -> int:
        """Ask again and again, as a thread that has the sync consumer does."""
        count = 0
        while not is_over:
            assert consumer.failures == {}
            count += 1
        return count

    async def count_queues() -> int:
        return len(await consumer.assignment())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns in the middle of what each does
    try:
        async with client.pull_consumer(topics="orders") as consumer:
            asking = asyncio.create_task(asyncio.to_thread(ask))
            for _ in range(4):
                for count in (20, 1):
                    queues.change_route(*many[:count])
                    await until_told(count_queues, (2 * count).__eq__)
            is_over = True
            assert await asking > 0
    finally:
        is_over = True
        sys.setswitchinterval(interval)


async def test_if_all_fail_the_poll_does(client: eruca.AsyncClient, queues: Queues) -> None:
    queues.errors = {name: eruca.OverloadedError(f"{name} is busy") for name in "ab"}

    async with client.pull_consumer(topics="orders") as consumer:
        with pytest.raises(eruca.OverloadedError, match="is busy"):
            await consumer.poll(wait_seconds=0.05)


@pytest.mark.parametrize(
    "error", [eruca.PermissionDeniedError("not yours"), QueueNotFoundError("no queue")]
)
async def test_a_refusal_that_is_meant_is_raised_though_another_broker_is_well(
    client: eruca.AsyncClient, queues: Queues, error: ErucaError
) -> None:
    queues.errors["a"] = error

    async with client.pull_consumer(topics="orders") as consumer:
        with pytest.raises(type(error)):
            await consumer.poll(wait_seconds=20)


async def test_messages_fetched_before_a_gap_are_handed_out_before_the_error(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, *map(str, range(10)))

    async with client.pull_consumer(
        queues=[eruca.MessageQueue("orders", "a", 0)], prefetch_count_max=4
    ) as consumer:
        assert texts(await consumer.poll(count_max=1, wait_seconds=20)) == ["0"]
        await until(lambda: consumer._assignment.flows[0].count == 3)
        queues.min_offset = 8  # retention
        seen: list[str] = []

        async def read_to_the_gap() -> None:
            while True:
                seen.extend(texts(await consumer.poll(count_max=1, wait_seconds=20)))

        with pytest.raises(eruca.OffsetOutOfRangeError, match="now begins at 8"):
            await read_to_the_gap()
        await consumer.seek_to_beginning()
        rest = texts(await consumer.poll(wait_seconds=20))

    assert seen[:3] == ["1", "2", "3"]
    assert rest == ["8", "9"]


async def test_a_commit_that_fails_is_made_up_for_by_the_next(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "x")
    rest = client.context.transport
    assert isinstance(rest, ScriptedTransport)

    async def refusing(request: Request) -> HttpResponse:
        if request.method == "PUT":
            raise eruca.TransportError("cut")
        return await queues.rest(request)

    rest.answer = refusing
    async with client.pull_consumer("g", topics="orders", commit_seconds=0) as consumer:
        await consumer.poll(wait_seconds=20)
        assert (
            await consumer.poll(wait_seconds=0.01) == []
        )  # its commit failed, and no message is lost
        with pytest.raises(eruca.TransportError):
            await consumer.commit()
        rest.answer = queues.rest
        await consumer.commit()

    offsets = [commit for request in queues.commits for commit in request["offsets"]]
    assert {"topic": "orders", "queue_id": 0, "offset": 1} in offsets


async def test_a_broker_that_hangs_at_a_commit_holds_up_no_messages_of_another(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "from a")
    queues.store(0, "from b", broker="b")
    rest = client.context.transport
    assert isinstance(rest, ScriptedTransport)
    is_back = asyncio.Event()
    under_way, most_under_way = 0, 0

    async def hanging(request: Request) -> HttpResponse:
        if request.method == "PUT" and request.url == "http://a":
            nonlocal under_way, most_under_way
            under_way += 1
            most_under_way = max(under_way, most_under_way)
            try:
                await is_back.wait()
            finally:
                under_way -= 1
        return await queues.rest(request)

    rest.answer = hanging
    async with client.pull_consumer("g", topics="orders", commit_seconds=0) as consumer:
        await until_told(
            lambda: consumer.poll(wait_seconds=20), lambda seen: "from a" in texts(seen)
        )
        await consumer.poll(wait_seconds=0.001)  # commits
        queues.store(0, "later", broker="b")
        assert texts(await consumer.poll(wait_seconds=20)) == ["later"]
        assert most_under_way == 1  # or an older position could come last
        is_back.set()
        await consumer.commit()

    stored = [commit for request in queues.commits for commit in request["offsets"]]
    assert {"topic": "orders", "queue_id": 0, "offset": 1} in stored


async def test_a_close_that_is_cancelled_at_the_last_commit_is_gone_through_with(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "x")
    rest = client.context.transport
    assert isinstance(rest, ScriptedTransport)
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> HttpResponse:
        if request.method == "PUT":
            is_asked.set()
            await may_answer.wait()
        return await queues.rest(request)

    rest.answer = slow
    consumer = client.pull_consumer("g", topics="orders")
    await until_told(lambda: consumer.poll(wait_seconds=20))
    closing = asyncio.create_task(consumer.close())
    await is_asked.wait()

    closing.cancel()
    await asyncio.wait([closing])
    may_answer.set()
    await client.close()  # waits for it

    stored = [commit for request in queues.commits for commit in request["offsets"]]
    assert {"topic": "orders", "queue_id": 0, "offset": 1} in stored


async def test_offsets_that_have_not_moved_are_not_committed_again(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    queues.store(0, "x")
    async with client.pull_consumer("g", topics="orders", commit_seconds=0) as consumer:
        await consumer.poll(wait_seconds=20)
        for _ in range(5):
            await consumer.poll(wait_seconds=0.001)
        count = len(queues.commits)
        for _ in range(5):
            await consumer.poll(wait_seconds=0.001)

    assert len(queues.commits) == count


async def test_offsets_that_are_given_are_committed_though_they_were_before(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    """Somebody may have reset the group in between."""
    queue = eruca.MessageQueue("orders", "a", 0)
    async with client.pull_consumer("g", topics="orders", commit_seconds=None) as consumer:
        await consumer.commit({queue: 8})
        await consumer.commit({queue: 8})

    assert [commit["offsets"][0]["offset"] for commit in queues.commits] == [8, 8]


async def test_a_position_is_an_error_where_its_broker_does_not_tell(
    client: eruca.AsyncClient, queues: Queues
) -> None:
    rest = client.context.transport
    assert isinstance(rest, ScriptedTransport)

    async def refusing(request: Request) -> HttpResponse:
        if request.url == "http://a":
            raise eruca.TransportError("cut")
        return await queues.rest(request)

    rest.answer = refusing
    async with client.pull_consumer(topics="orders") as consumer:
        assert await consumer.position(eruca.MessageQueue("orders", "b", 0)) == 0
        with pytest.raises(eruca.TransportError):
            await consumer.position(eruca.MessageQueue("orders", "a", 0))


@pytest.mark.parametrize("handed_out", [0, 1, 3])
async def test_queues_that_go_and_come_back_are_read_on_where_they_were_left(
    client: eruca.AsyncClient, queues: Queues, handed_out: int
) -> None:
    """As all queues of a broker do when it restarts; the iteration before was left halfway."""
    queues.store(0, *map(str, range(5)), broker="b")

    async with client.pull_consumer(topics="orders") as consumer:
        await until_filled(consumer, 5)
        seen = [(await anext(consumer)).text() for _ in range(handed_out)]
        queues.change_route("a")
        await until(lambda: consumer._assignment._is_stale)
        assert await consumer.poll(wait_seconds=0.01) == []
        assert {queue.broker_name for queue in await consumer.assignment()} == {"a"}

        queues.change_route("a", "b")
        while len(seen) < 5:
            seen += texts(await consumer.poll(wait_seconds=20))

    assert seen == [str(number) for number in range(5)]


@pytest.mark.parametrize(
    ("start", "seen"),
    [("earliest", ["0", "1", "2"]), ("latest", ["2"]), (datetime(2026, 11, 21, tzinfo=UTC), ["2"])],
)
async def test_of_a_broker_that_was_away_is_read_what_would_have_been_had_it_been_there(
    client: eruca.AsyncClient,
    queues: Queues,
    start: StartPosition | datetime,
    seen: list[str],
) -> None:
    queues.change_route("a")
    queues.old_count = 2
    queues.store(0, "0", "1", broker="b")

    async with client.pull_consumer(topics="orders", start=start) as consumer:
        assert await consumer.poll(wait_seconds=0.01) == []
        queues.store(0, "2", broker="b")
        queues.change_route("a", "b")
        received: list[str] = []
        while len(received) < len(seen):
            received += texts(await consumer.poll(wait_seconds=20))

    assert received == seen


@pytest.mark.parametrize("old_count", [0, 1])
async def test_only_a_new_queue_is_read_without_the_offset_that_its_consumer_insists_on(
    client: eruca.AsyncClient, queues: Queues, old_count: int
) -> None:
    queues.change_route()
    queues.old_count = old_count
    queues.store(0, "x", broker="b")

    async with client.pull_consumer("g", topics="orders", start="committed") as consumer:
        assert await consumer.poll(wait_seconds=0.01) == []
        queues.change_route("b")
        if old_count:
            with pytest.raises(eruca.NoCommittedOffsetError):
                await consumer.poll(wait_seconds=20)
        else:
            assert texts(await consumer.poll(wait_seconds=20)) == ["x"]


def test_another_event_loop_is_refused(queues: Queues, hot: ScriptedTransport) -> None:
    client = eruca.AsyncClient(
        "http://namesrv", hot_transport=hot, transport=ScriptedTransport(queues.rest)
    )
    consumer = client.pull_consumer(topics="orders")

    async def use() -> None:
        assert await consumer.poll(wait_seconds=0.01) == []
        await consumer.pause()  # and so nothing is fetched when the loop ends

    asyncio.run(use())
    with pytest.raises(eruca.ClosedError, match="another event loop"):
        asyncio.run(use())


async def until_filled(consumer: eruca.AsyncPullConsumer, count: int) -> None:
    await consumer.assignment()
    await until(lambda: sum(flow.count for flow in consumer._assignment.flows) == count)


async def test_a_number_is_no_queue_to_read() -> None:
    client = eruca.AsyncClient("http://127.0.0.1:1")
    async with client:
        with pytest.raises(ValidationError, match=r"queues: \[3\] is not a list of MessageQueue"):
            client.pull_consumer(queues=[3])  # type: ignore[list-item]
        with pytest.raises(
            ValidationError, match=r"3 is (no |not an object of eruca\.)MessageQueue"
        ):
            await client.admin.offset_by_time(3, datetime.now(UTC))  # type: ignore[arg-type]
        with pytest.raises(
            ValidationError, match=r"offsets: \{3: 0\} is not a mapping from an object"
        ):
            await client.admin.groups.commit("g", {3: 0})  # type: ignore[dict-item]
