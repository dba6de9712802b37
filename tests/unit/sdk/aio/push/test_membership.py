"""Sessions at brokers: kept by heartbeats, and over by our own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.http.transport import HttpResponse, NotConnectedError
from eruca.aio.push import membership
from eruca.aio.push.background import Background
from eruca.aio.push.membership import Membership
from eruca.contract.errors import (
    ClientIdInUseError,
    ErucaError,
    SubscriptionConflictError,
    TimeoutExpiredError,
    TransportError,
    ValidationError,
)
from eruca.contract.groups import Heartbeat, MemberHandling, Subscription
from eruca.contract.limits import LOCK_COUNT_MAX
from eruca.core.messages.message_queue import MessageQueue
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer
from support.waiting import until

pytestmark = pytest.mark.anyio

QUEUE = MessageQueue("orders", "a", 0)


class Brokers:
    """Answers heartbeats, as long as it is not told otherwise."""

    def __init__(self) -> None:
        self.beats: list[tuple[str, dict[str, Any]]] = []
        self.left: list[str] = []
        self.session_seconds = 3.0
        self.lost_locks: list[dict[str, Any]] = []
        self.topics_since: dict[str, dict[str, str]] = {}
        self.errors: dict[str, ErucaError] = {}
        self.silent: set[str] = set()
        self.strangers: set[str] = set()  # something else has got these addresses
        self.earlier: set[str] = set()  # brokers from before the field `handling`
        self.may_answer = asyncio.Event()  # heartbeats take until then to be dealt with
        self.may_answer.set()
        self.members: set[str] = set()  # the brokers where we are a member

    async def answer(self, request: Request) -> HttpResponse:
        name = request.url.removeprefix("http://")
        if request.method == "DELETE":
            self.left.append(name)
            self.members.discard(name)
            return HttpResponse(204, {}, b"")
        self.beats.append((name, msgspec.json.decode(request.body)))
        if name in self.silent:
            raise TimeoutExpiredError("no answer")
        if name in self.strangers:
            return HttpResponse(404, {"content-type": "text/html"}, b"<h1>Not found</h1>")
        if (error := self.errors.get(name)) is not None:
            if isinstance(error, TransportError):
                raise error
            return problem_answer(error)
        if name in self.earlier and "handling" in msgspec.json.decode(request.body):
            return problem_answer(ValidationError.at("/body/handling", "unknown field"))
        await self.may_answer.wait()
        self.members.add(name)
        lost, self.lost_locks = self.lost_locks, []
        return json_answer(
            {
                "group": "billing",
                "client_id": "me",
                "generation": 1,
                "subscription_version": 1,
                "session_seconds": self.session_seconds,
                "consume_enabled": True,
                "lost_locks": lost,
                "topics_since": self.topics_since.get(name, {}),
            }
        )


class Member:
    """A membership, and what it told."""

    def __init__(self, brokers: Brokers) -> None:
        self.locks: dict[MessageQueue, int] = {}
        self.gone: list[Mapping[MessageQueue, int]] = []
        self.over: list[str] = []
        self.refused: list[ErucaError] = []
        self.failures: list[BaseException] = []
        self.background = Background(self.failures.append)
        api = GroupApi(
            ScriptedTransport(brokers.answer), "billing", client_id="me", incarnation="1", timeout=1
        )
        heartbeat = Heartbeat(
            incarnation="1", subscriptions=[Subscription(topic="orders")], session_seconds=3
        )
        self.membership = Membership(
            api,
            lambda name: f"http://{name}",
            heartbeat,
            locks_at=lambda _: self.locks,
            on_beat=lambda: None,
            on_locks_gone=self.gone.append,
            on_over=self.over.append,
            on_refused=self.refused.append,
            tasks=self.background,
            handling=lambda: MemberHandling(
                covered_seconds=1, message_count=0, call_count=0, busy_seconds=0
            ),
        )


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
async def member(brokers: Brokers) -> AsyncIterator[Member]:
    member = Member(brokers)
    yield member
    await member.membership.close()
    await member.background.close()
    assert member.failures == []


async def test_joining_passes_on_what_the_brokers_before_it_told(
    brokers: Brokers, member: Member
) -> None:
    brokers.topics_since = {"a": {"orders": "2026-11-21T08:00:00Z"}}

    await member.membership.join(["b", "a"])

    assert [name for name, _ in brokers.beats] == ["a", "b"]
    assert [beat["topics_since"] for _, beat in brokers.beats] == [
        {},
        {"orders": "2026-11-21T08:00:00Z"},
    ]
    assert member.membership.is_alive("a")
    assert member.membership.is_alive("b")


async def test_a_broker_that_refuses_statistics_of_handlers_gets_heartbeats_without_them(
    brokers: Brokers, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.earlier = {"a"}
    brokers.session_seconds = 0.3
    await member.membership.join(["a", "b"])
    assert member.membership.is_alive("a")

    await until(lambda: len(told_to(brokers, "a")) >= 4 and len(told_to(brokers, "b")) >= 2)

    assert told_to(brokers, "a")[:4] == [True, False, False, False]
    assert all(told_to(brokers, "b"))
    assert (member.over, member.refused) == ([], [])


async def test_a_broker_that_refused_statistics_of_handlers_is_told_once_it_is_upgraded(
    brokers: Brokers, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "UNTOLD_SECONDS", 0.0)
    brokers.earlier = {"a"}
    brokers.session_seconds = 0.3
    await member.membership.join(["a"])
    assert told_to(brokers, "a")[:2] == [True, False]

    brokers.earlier.clear()

    await until(lambda: told_to(brokers, "a")[-2:] == [True, True])
    assert (member.over, member.refused) == ([], [])


def told_to(brokers: Brokers, name: str) -> list[bool]:
    """Return whether each heartbeat to a broker told of handlers."""
    return ["handling" in beat for at, beat in brokers.beats if at == name]


async def test_a_broker_that_does_not_answer_is_tried_again_in_the_background(
    brokers: Brokers, member: Member
) -> None:
    brokers.errors["a"] = TransportError("down")
    await member.membership.join(["a", "b"])
    assert not member.membership.is_alive("a")

    brokers.errors.clear()

    await until(lambda: member.membership.is_alive("a"))


async def test_joining_fails_if_no_broker_answers_or_one_refuses(
    brokers: Brokers, member: Member
) -> None:
    brokers.errors = {"a": TransportError("down"), "b": TransportError("down")}
    with pytest.raises(TransportError):
        await member.membership.join(["a", "b"])

    brokers.errors = {"b": SubscriptionConflictError("other tags")}
    with pytest.raises(SubscriptionConflictError, match="other tags"):
        await member.membership.join(["a", "b"])


async def test_heartbeats_come_three_times_a_session(brokers: Brokers, member: Member) -> None:
    brokers.session_seconds = 0.3

    await member.membership.join(["a"])

    await until(lambda: len(brokers.beats) >= 6)
    assert member.over == []


async def test_a_session_that_is_not_renewed_is_over(brokers: Brokers, member: Member) -> None:
    brokers.session_seconds = 0.2
    await member.membership.join(["a", "b"])

    brokers.silent = {"a"}

    await until(lambda: member.over == ["a"])
    assert not member.membership.is_alive("a")
    assert member.membership.is_alive("b")


async def test_an_answer_after_the_end_begins_a_new_session(
    brokers: Brokers, member: Member
) -> None:
    brokers.session_seconds = 0.2
    await member.membership.join(["a"])
    brokers.silent = {"a"}
    await until(lambda: member.over == ["a"])

    brokers.silent = set()

    await until(lambda: member.membership.is_alive("a"))
    assert member.over == ["a"]


async def test_a_broker_that_does_not_answer_is_told_of_once_and_when_it_does_again(
    brokers: Brokers, member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    await member.membership.join(["a"])
    brokers.silent = {"a"}
    member.membership.beat_soon("a")
    asked = len(brokers.beats)
    await until(lambda: len(brokers.beats) >= asked + 3)
    brokers.silent = set()
    await until(lambda: "answers heartbeats again" in caplog.text)

    told = [record.getMessage() for record in caplog.records if "heartbeat" in record.getMessage()]
    assert [text.partition(":")[0] for text in told] == [
        "broker a did not answer a heartbeat; retrying",
        "broker a answers heartbeats again",
    ]


async def test_locks_that_are_gone_are_told_by_the_tokens_the_heartbeat_had(
    brokers: Brokers, member: Member
) -> None:
    member.locks = {QUEUE: 17}
    brokers.lost_locks = [{"topic": "orders", "queue_id": 0}, {"topic": "orders", "queue_id": 9}]

    await member.membership.join(["a"])

    assert brokers.beats[0][1]["locks"] == [{"topic": "orders", "queue_id": 0, "token": 17}]
    assert member.gone == [{QUEUE: 17}]


async def test_being_fenced_is_told_and_ends_the_heartbeats(
    brokers: Brokers, member: Member
) -> None:
    await member.membership.join(["a"])
    brokers.errors["a"] = ClientIdInUseError("somebody else")

    member.membership.beat_soon("a")

    await until(lambda: len(member.refused) == 1)
    assert isinstance(member.refused[0], ClientIdInUseError)


async def test_a_strangers_answer_ends_no_heartbeats(brokers: Brokers, member: Member) -> None:
    await member.membership.join(["a"])
    brokers.strangers.add("a")
    await until(lambda: member.over == ["a"])
    brokers.strangers.clear()

    await until(lambda: member.membership.is_alive("a"))

    assert member.refused == []


async def test_leaving_tells_every_broker_where_there_is_a_session(
    brokers: Brokers, member: Member
) -> None:
    brokers.errors["c"] = NotConnectedError("down")
    await member.membership.join(["a", "b", "c"])

    await member.membership.leave()

    assert sorted(brokers.left) == ["a", "b"]


async def test_leaving_tells_a_broker_that_may_have_had_a_heartbeat(
    brokers: Brokers, member: Member
) -> None:
    brokers.errors["c"] = TransportError("the connection broke before the answer")
    await member.membership.join(["a", "c"])

    await member.membership.leave()

    assert sorted(brokers.left) == ["a", "c"]


async def test_who_is_joining_leaves_after_it_has_joined(brokers: Brokers, member: Member) -> None:
    brokers.may_answer.clear()
    joining = asyncio.create_task(member.membership.join(["a"]))
    await until(lambda: brokers.beats)
    joining.cancel()
    leaving = asyncio.create_task(member.membership.leave())
    await asyncio.wait((joining,))

    brokers.may_answer.set()  # what nobody waits for any more gets there

    await leaving
    assert brokers.left == ["a"]
    assert brokers.members == set()


async def test_brokers_without_queues_are_forgotten(brokers: Brokers, member: Member) -> None:
    await member.membership.join(["a", "b"])

    member.membership.keep(["b"])
    await asyncio.sleep(0)

    assert member.membership.brokers == ["b"]


async def test_more_locks_than_a_heartbeat_can_name_are_named_by_several(
    brokers: Brokers, member: Member
) -> None:
    queues = [MessageQueue("orders", "a", number) for number in range(LOCK_COUNT_MAX + 1)]
    member.locks = dict.fromkeys(queues, 7)
    brokers.lost_locks = [{"topic": "orders", "queue_id": 0}]

    await member.membership.join(["a"])

    named = [lock["queue_id"] for _, beat in brokers.beats for lock in beat["locks"]]
    assert named == [queue.queue_id for queue in queues]
    assert member.gone == [{queues[0]: 7}]
