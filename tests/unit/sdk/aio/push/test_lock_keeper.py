"""Asking for locks: what may have been granted is found out, and what is not wanted is released."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.http.transport import HttpResponse
from eruca.aio.push import lock_keeper
from eruca.aio.push.background import Background
from eruca.aio.push.lock_keeper import LockKeeper
from eruca.contract.errors import (
    MemberNotFoundError,
    QueueNotFoundError,
    TransportError,
)
from eruca.contract.groups import GrantedLock
from eruca.core.messages.message_queue import MessageQueue
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    problem_answer,
)
from support.waiting import until

pytestmark = pytest.mark.anyio

QUEUES = [MessageQueue("orders", "a", number) for number in range(3)]


class Broker:
    """Grants what is free, holds what is not, and remembers who holds what."""

    def __init__(self) -> None:
        self.locks: dict[int, int] = {}  # tokens by queue id, of the member under test
        self.taken: set[int] = set()  # by somebody else
        self.asked: list[tuple[list[int], float]] = []
        self.released: list[int] = []
        self.lose_answers = 0  # so many requests are served and not answered
        self.lose_releases = 0  # so many do not get there
        self.releases_under_way = 0
        self.may_release = asyncio.Event()  # they take until then to get there
        self.may_release.set()
        self.refusal: HttpResponse | None = None
        self.gone: set[int] = set()  # queues of which there are none any more
        self._freed = asyncio.Event()
        self._token = 0

    async def answer(self, request: Request) -> HttpResponse:
        body: dict[str, Any] = msgspec.json.decode(request.body)
        ids = [queue["queue_id"] for queue in body["queues"]]
        if request.target.endswith("locks:release"):
            self.releases_under_way += 1
            await self.may_release.wait()
            if self.lose_releases:
                self.lose_releases -= 1
                raise TransportError("the connection broke")
            self.released += ids
            for queue_id in ids:
                del self.locks[queue_id]
            return HttpResponse(204, {}, b"")
        self.asked.append((ids, body["wait_seconds"]))
        if self.refusal is not None:
            return self.refusal
        if gone := [place for place, queue_id in enumerate(ids) if queue_id in self.gone]:
            pointers = [{"pointer": f"/body/queues/{place}", "detail": "gone"} for place in gone]
            return problem_answer(QueueNotFoundError("gone", errors=pointers))
        while body["wait_seconds"] and self.taken.issuperset(ids):
            await self._freed.wait()
        granted = [queue_id for queue_id in ids if queue_id not in self.taken]
        for queue_id in granted:
            self._token += 1
            self.locks.setdefault(queue_id, self._token)
        if self.lose_answers:
            self.lose_answers -= 1
            raise TransportError("the connection broke")
        locks = [
            {
                "topic": "orders",
                "queue_id": queue_id,
                "token": self.locks[queue_id],
                "next_offset": 0,
                "committed_offset": None,
                "started": None,
            }
            for queue_id in granted
        ]
        return json_answer({"locks": locks, "refused": []})

    def free(self, queue_id: int) -> None:
        """Let go of a queue that somebody else held."""
        self.taken.discard(queue_id)
        self._freed.set()
        self._freed = asyncio.Event()


class Member:
    """A keeper, and what it told."""

    def __init__(self, broker: Broker) -> None:
        self.granted: dict[MessageQueue, GrantedLock] = {}
        self.doubts: list[str] = []
        self.failures: list[BaseException] = []
        self.background = Background(self.failures.append)
        api = GroupApi(
            ScriptedTransport(broker.answer),
            "billing",
            client_id="me",
            incarnation="1",
            timeout=20,
        )
        self.keeper = LockKeeper(
            "a",
            api,
            lambda _: "http://a",
            is_member=lambda _: True,
            on_granted=self.granted.update,
            on_doubt=self.doubts.append,
            background=self.background,
        )


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def member(broker: Broker) -> AsyncIterator[Member]:
    member = Member(broker)
    yield member
    member.keeper.close()
    await member.background.close()
    assert member.failures == []


async def test_what_is_free_is_granted_at_once(member: Member) -> None:
    member.keeper.want(QUEUES)

    await until(lambda: len(member.granted) == 3)


async def test_what_somebody_holds_is_granted_when_it_is_free(
    broker: Broker, member: Member
) -> None:
    broker.taken = {0, 1, 2}
    member.keeper.want(QUEUES)
    await until(lambda: broker.asked)

    broker.free(1)

    await until(lambda: list(member.granted) == [QUEUES[1]])
    await until(lambda: broker.asked[-1][0] == [0, 2])  # the others are asked for on


async def test_a_grant_whose_answer_was_lost_is_found_out(broker: Broker, member: Member) -> None:
    broker.lose_answers = 1

    member.keeper.want(QUEUES[:1])

    await until(lambda: member.granted)
    assert broker.locks == {0: member.granted[QUEUES[0]].token}


async def test_a_lost_grant_that_is_not_wanted_any_more_is_released(
    broker: Broker, member: Member
) -> None:
    broker.lose_answers = 1
    member.keeper.want(QUEUES[:1])
    await until(lambda: broker.locks)

    member.keeper.want([])

    await until(lambda: broker.released == [0])
    assert broker.locks == {}
    assert member.granted == {}


async def test_a_request_for_too_much_is_given_up_and_its_outcome_found_out(
    broker: Broker, member: Member
) -> None:
    broker.taken = {0, 1}
    member.keeper.want(QUEUES[:2])
    await until(lambda: len(broker.asked) == 1)

    member.keeper.want(QUEUES[:1])
    await until(lambda: len(broker.asked) == 3)

    assert sorted(broker.asked[1:], key=lambda ask: -ask[1])[0][0] == [0]
    assert ([1], 0.0) in broker.asked  # perhaps it had been granted: it had not
    broker.free(1)
    broker.free(0)
    await until(lambda: list(member.granted) == [QUEUES[0]])


async def test_a_lock_that_was_given_up_without_a_word_is_released(
    broker: Broker, member: Member
) -> None:
    member.keeper.want(QUEUES[:2])
    await until(lambda: len(member.granted) == 2)
    broker.taken = {1}  # as far as this broker knows, the member still holds 0

    member.keeper.doubt(QUEUES[:2])

    await until(lambda: broker.released == [0])
    assert broker.asked[-1] == ([0, 1], 0.0)


async def test_a_lock_that_was_given_up_without_a_word_and_is_wanted_again_is_kept(
    broker: Broker, member: Member
) -> None:
    member.keeper.want(QUEUES[:1])
    await until(lambda: member.granted)
    token = broker.locks[0]
    member.granted.clear()

    member.keeper.doubt(QUEUES[:1])
    member.keeper.want(QUEUES[:1])

    await until(lambda: member.granted)
    assert member.granted[QUEUES[0]].token == token
    assert broker.released == []


@pytest.mark.parametrize("lost", [0, 1], ids=["late", "lost at first"])
async def test_a_lock_that_is_wanted_while_it_is_released_is_asked_for_after_that(
    broker: Broker, member: Member, lost: int
) -> None:
    broker.may_release.clear()
    broker.lose_releases = lost
    member.keeper.doubt(QUEUES[:1])
    await until(lambda: broker.releases_under_way == 1)

    member.keeper.want(QUEUES[:2])
    await until(lambda: QUEUES[1] in member.granted)
    broker.may_release.set()

    await until(lambda: broker.released == [0])
    await until(lambda: len(member.granted) == 2)
    assert broker.locks == {q.queue_id: lock.token for q, lock in member.granted.items()}


async def test_a_lock_that_was_granted_in_a_session_that_is_over_is_not_taken_over(
    broker: Broker, member: Member
) -> None:
    broker.taken = {0}
    member.keeper.want(QUEUES[:1])
    await until(lambda: broker.asked)

    broker.free(0)  # its answer is under way …
    member.keeper.end_session()
    assert member.granted == {}

    await until(lambda: member.granted)  # … and what another request finds out counts
    assert [ids for ids, _ in broker.asked] == [[0], [0]]


async def test_a_broker_that_does_not_know_the_member_is_told_of(
    broker: Broker, member: Member
) -> None:
    broker.refusal = problem_answer(MemberNotFoundError("who?"))
    member.keeper.want(QUEUES[:1])
    await until(lambda: member.doubts == ["a"])

    broker.refusal = None

    await until(lambda: member.granted)


async def test_a_lost_grant_is_found_out_though_the_broker_had_to_be_joined_again_first(
    broker: Broker, member: Member
) -> None:
    broker.lose_answers = 1
    member.keeper.want(QUEUES[:1])
    await until(lambda: broker.locks)
    broker.refusal = problem_answer(MemberNotFoundError("I have restarted: who?"))
    member.keeper.want([])
    await until(lambda: member.doubts == ["a"])

    broker.refusal = None  # we have joined, and hold all we held before, by what it has stored

    await until(lambda: broker.released == [0])
    assert broker.locks == {}


async def test_queues_that_are_gone_keep_no_other_from_being_locked(
    broker: Broker, member: Member
) -> None:
    broker.gone = {0, 2}

    member.keeper.want(QUEUES)

    await until(lambda: list(member.granted) == [QUEUES[1]])
    assert [ids for ids, _ in broker.asked] == [[0, 1, 2], [1]]


async def test_a_queue_that_was_gone_is_locked_once_it_is_there_again(
    broker: Broker, member: Member
) -> None:
    broker.gone = {0, 1}
    member.keeper.want(QUEUES[:2])
    await until(lambda: broker.asked)

    broker.gone = {1}

    await until(lambda: list(member.granted) == [QUEUES[0]])


async def test_failures_are_followed_by_pauses_that_grow(broker: Broker, member: Member) -> None:
    broker.lose_answers = 2
    began = asyncio.get_running_loop().time()

    member.keeper.want(QUEUES[:1])
    await until(lambda: member.granted)

    assert asyncio.get_running_loop().time() - began >= 0.2 + 0.4


async def test_locks_that_were_not_to_be_had_for_hours_are_still_asked_for(
    broker: Broker, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_keeper, "PAUSE_SECONDS_MAX", 0.0)
    broker.lose_answers = 1_100  # 2.0**1024 is no float

    member.keeper.want(QUEUES[:1])

    await until(lambda: member.granted)
