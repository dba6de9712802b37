"""The thread that renews sessions: it acts while the event loop is blocked, and only then.

The broker runs in a thread of its own, so that it answers while the test blocks the event loop. A
session lasts for far longer than a test: rather than to wait until a heartbeat is due, the tests
age it, so that a busy machine has all the time it wants.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.http.credentials import ANONYMOUS
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.push.standby import LOOKS_PER_SESSION, Renewal, Standby
from eruca.contract.errors import NotMasterError
from eruca.contract.groups import Heartbeat, Subscription
from eruca.core.consuming.session import Session
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.master_book import MasterBook
from support.http_peers import peer, read_request
from support.waiting import until

pytestmark = pytest.mark.anyio

SESSION_SECONDS = 60.0
DUE_SECONDS = SESSION_SECONDS * 0.4  # the age at which a heartbeat is due, and a little more
LOOK_SECONDS = 0.3  # between two looks at the event loop, and for a heartbeat
BLOCKED_AT_MOST = 20.0
QUEUES = [MessageQueue("orders", "a", number) for number in range(2)]


class Broker:
    """Answers heartbeats, as long as it is not told otherwise."""

    def __init__(self) -> None:
        self.url = ""
        self.beats: list[dict[str, Any]] = []
        self.lost_locks: list[dict[str, Any]] = []
        self.answers_after = 0.0
        self.answered = 0
        self.before_answer: Callable[[], None] = lambda: None
        self.is_standby_at: str | None = None  # the Host at which it is not the master
        self.redirected = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, headers, body = await read_request(reader)
            if self.is_standby_at is not None and headers["host"] == self.is_standby_at:
                self.redirected += 1
                problem = NotMasterError(
                    "a standby", epoch=8, master_urls={"default": self.url}
                ).problem()
                text = msgspec.json.encode(problem)
                head = f"HTTP/1.1 307 Temporary Redirect\r\ncontent-length: {len(text)}\r\n"
                head += "content-type: application/problem+json\r\n\r\n"
                writer.write(head.encode() + text)
                await writer.drain()
                continue
            self.beats.append(msgspec.json.decode(body))
            await asyncio.sleep(self.answers_after)  # the slowness under test
            self.before_answer()
            answer = msgspec.json.encode(
                {
                    "group": "billing",
                    "client_id": "me",
                    "generation": 1,
                    "subscription_version": 1,
                    "session_seconds": SESSION_SECONDS,
                    "consume_enabled": True,
                    "lost_locks": self.lost_locks,
                    "topics_since": {},
                }
            )
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(answer)}\r\n"
            writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + answer)
            await writer.drain()
            self.answered += 1


class Member:
    """A member's session at the broker, and the thread that renews it."""

    def __init__(
        self, broker: Broker, *, limit: float = 600.0, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self.session = Session(SESSION_SECONDS)
        self.session.renew(time.monotonic(), SESSION_SECONDS)
        self.tokens = {QUEUES[0]: 17, QUEUES[1]: 18}
        self.begun_at = 0.0
        self.gone: list[tuple[str, Mapping[MessageQueue, int]]] = []
        self.failures: list[BaseException] = []
        heartbeat = Heartbeat(incarnation="1", subscriptions=[Subscription(topic="orders")])
        self.renewals = [Renewal("a", self.session, broker.url, heartbeat, self.tokens)]
        self.transport = Http1Transport()
        self.standby = Standby(
            GroupApi(self.transport, "billing", client_id="me", incarnation="1", timeout=1),
            credentials=ANONYMOUS,
            book=MasterBook(),
            session_seconds=look_seconds * LOOKS_PER_SESSION,
            limit=limit,
            renewals=lambda: list(self.renewals),
            begun_at=lambda: self.begun_at,
            on_locks_gone=lambda lost: self.gone.append((threading.current_thread().name, lost)),
            on_failure=self.failures.append,
        )
        self.standby.start()

    def grow_old(self, seconds: float = DUE_SECONDS) -> None:
        """Have so much time pass for the session."""
        self.session.renewed_at -= seconds

    def block_until_renewed(self) -> None:
        """Block the event loop while a heartbeat becomes due and is answered."""
        self.grow_old()
        renewed_at = self.session.renewed_at
        block_until(lambda: self.session.renewed_at > renewed_at)

    async def close(self) -> None:
        await self.standby.close()
        await self.transport.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(peer(broker.serve)) as running,
    ):
        broker.url = running.url
        yield broker


@pytest.fixture
async def member(broker: Broker) -> AsyncIterator[Member]:
    member = Member(broker)
    yield member
    await member.close()
    assert member.failures == []


def block(seconds: float) -> None:
    """Keep the event loop from turning, as a handler that does not wait in an async way."""
    time.sleep(seconds)  # what must not be done, and is


def block_until(condition: Callable[[], object]) -> None:
    """Keep the event loop from turning until something is so."""
    end = time.monotonic() + BLOCKED_AT_MOST
    while not condition():
        assert time.monotonic() < end
        block(0.005)


@contextmanager
def quiet(broker: Broker) -> Iterator[None]:
    """Expect no heartbeat."""
    before = len(broker.beats)
    yield
    assert len(broker.beats) == before


async def test_while_the_event_loop_turns_nothing_is_sent(broker: Broker, member: Member) -> None:
    member.grow_old()

    with quiet(broker):
        await asyncio.sleep(LOOK_SECONDS * 4)  # so long that a heartbeat would be sent


async def test_a_session_outlives_a_block_of_several_sessions(
    broker: Broker, member: Member
) -> None:
    for _ in range(6):
        member.block_until_renewed()

    assert not member.session.is_over(time.monotonic())
    assert len(broker.beats) >= 6
    assert broker.beats[-1]["incarnation"] == "1"


async def test_a_session_is_renewed_at_the_master_that_a_redirect_names(
    broker: Broker, member: Member
) -> None:
    former = broker.url.replace("127.0.0.1", "localhost")
    broker.is_standby_at = former.removeprefix("http://")
    member.renewals = [member.renewals[0]._replace(url=former)]

    member.block_until_renewed()

    assert broker.redirected >= 1
    assert len(broker.beats) >= 1


async def test_it_is_quiet_again_once_the_event_loop_turns(broker: Broker, member: Member) -> None:
    member.block_until_renewed()
    await asyncio.sleep(LOOK_SECONDS * 2)  # the loop turns
    member.grow_old()

    with quiet(broker):
        await asyncio.sleep(LOOK_SECONDS * 4)  # so long that a heartbeat would be sent


async def test_beyond_the_limit_the_sessions_run_out(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(broker, limit=0.001)
    member.begun_at = math.inf
    member.block_until_renewed()

    member.begun_at = 0.0
    block_until(lambda: "the sessions are not renewed any more" in caplog.text)
    member.grow_old()

    with quiet(broker):
        block(LOOK_SECONDS * 3)
    assert len(caplog.records) == 1  # said once
    await member.close()


async def test_the_limit_counts_again_for_each_handler(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(broker, limit=0.001)
    block_until(lambda: "the sessions are not renewed any more" in caplog.text)

    member.begun_at = math.inf
    member.block_until_renewed()

    await member.close()


async def test_a_session_that_is_over_is_not_renewed(broker: Broker, member: Member) -> None:
    member.grow_old(2 * SESSION_SECONDS)

    with quiet(broker):
        block(LOOK_SECONDS * 4)

    assert member.session.is_over(time.monotonic())


async def test_an_answer_that_comes_after_the_end_does_not_bring_the_session_back(
    broker: Broker, member: Member
) -> None:
    broker.before_answer = lambda: member.grow_old(2 * SESSION_SECONDS)
    member.grow_old()

    block_until(lambda: broker.answered)

    await member.standby.close()  # so the answer has been taken in
    assert member.session.is_over(time.monotonic())


async def test_queues_whose_locks_are_gone_are_told_in_the_thread(
    broker: Broker, member: Member
) -> None:
    broker.lost_locks = [{"topic": "orders", "queue_id": 1}, {"topic": "orders", "queue_id": 7}]
    member.grow_old()

    block_until(lambda: member.gone)

    assert member.gone[0] == ("eruca-heartbeats", {QUEUES[1]: 18})


async def test_what_has_been_withdrawn_is_not_renewed(broker: Broker, member: Member) -> None:
    member.renewals.clear()
    member.grow_old()

    with quiet(broker):
        block(LOOK_SECONDS * 4)


async def test_when_closing_returns_no_heartbeat_is_under_way_and_none_will_be_sent(
    broker: Broker,
) -> None:
    member = Member(broker, look_seconds=1.0)  # for the answer, too
    member.grow_old()
    renewed_at = member.session.renewed_at
    broker.answers_after = 0.1

    block_until(lambda: broker.beats)
    await member.standby.close()

    assert member.session.renewed_at > renewed_at  # by the heartbeat that was under way
    member.grow_old()
    with quiet(broker):
        block(2.5)
    await member.close()


async def test_a_broker_that_does_not_answer_delays_no_other(
    broker: Broker, member: Member
) -> None:
    session = Session(SESSION_SECONDS)
    session.renew(renewed_at := time.monotonic() - DUE_SECONDS, SESSION_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        member.renewals.insert(0, Renewal("b", session, url, *member.renewals[0][3:]))

        for _ in range(3):
            member.block_until_renewed()

    assert session.renewed_at == renewed_at


def test_the_thread_ends_when_its_event_loop_is_closed(broker: Broker) -> None:
    threads = set(threading.enumerate())

    async def leave_it_running() -> Http1Transport:
        return Member(broker).transport

    asyncio.run(leave_it_running())

    [thread] = [t for t in threading.enumerate() if t not in threads]
    thread.join(20)
    assert not thread.is_alive()


async def test_an_error_of_ours_is_told_to_the_event_loop(broker: Broker) -> None:
    asked: list[None] = []

    class Broken:
        @property
        def session(self) -> Session:
            asked.append(None)
            raise ArithmeticError

    member = Member(broker)
    member.renewals[0] = Broken()  # type: ignore[call-overload]

    block_until(lambda: asked)

    await until(lambda: member.failures)
    assert [*map(type, member.failures)] == [ArithmeticError]
    await member.close()
