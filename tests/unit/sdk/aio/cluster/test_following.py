"""Requests that follow a master: where they go, how often, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import eruca
from eruca.aio.cluster.following import HOPS_MAX, FollowingTransport
from eruca.aio.http.transport import HttpResponse, NotConnectedError, PipeLostError
from eruca.core.routing.master_book import MasterBook
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio
A, B, C = "http://a:1", "http://b:1", "http://c:1"
BODY = (b"first ", b"second")


class Group:
    """Replicas whose answers a test sets, and a client's view of them."""

    def __init__(self, *, waits: bool = False, is_held: bool = False) -> None:
        self.masters: dict[str, tuple[str, int] | None] = {}  # named by a replica; None: nobody
        self.asked: list[str] = []
        self.bodies: set[bytes] = set()
        self.lost: list[str] = []
        self.on_request: Callable[[Request], Awaitable[None]] | None = None
        self.book = MasterBook()
        self.sending = ScriptedTransport(self.answer)
        self.transport = FollowingTransport(
            self.sending, self.book, on_redirect=self.lost.append, waits=waits, is_held=is_held
        )

    async def answer(self, request: Request) -> HttpResponse:
        self.asked.append(request.url)
        self.bodies.add(request.body)
        if self.on_request is not None:
            await self.on_request(request)
        if request.url not in self.masters:
            return json_answer({"by": request.url})
        if (named := self.masters[request.url]) is None:
            return problem_answer(eruca.NotMasterForSureError("an election"))
        url, epoch = named
        return problem_answer(
            eruca.NotMasterError("a standby", epoch=epoch, master_urls={"default": url})
        )

    async def send(self, url: str = A, timeout: float = 20) -> HttpResponse:
        return await self.transport.request("POST", url, "/v1/x", body=BODY, timeout=timeout)


async def test_a_request_goes_on_to_the_master_and_the_next_one_goes_there_at_once() -> None:
    group = Group()
    group.masters[A] = (B, 8)

    first, second = await group.send(), await group.send()

    assert first.status == second.status == 200
    assert group.asked == [A, B, B]
    assert group.bodies == {b"first second"}
    assert group.lost == [A]


async def test_a_connection_to_another_replica_leaves_what_is_known_of_the_master() -> None:
    group = Group()
    group.masters[A] = (B, 8)
    await group.send()
    group.lost.clear()

    async def lost_before(_: Request) -> None:
        raise PipeLostError("the connection leads to another replica")

    group.on_request = lost_before
    with pytest.raises(PipeLostError):
        await group.send()

    assert group.book.place(A) == B
    assert group.lost == []


async def test_a_redirect_leaves_the_rest_of_the_timeout() -> None:
    group = Group()
    group.masters[A] = (B, 8)

    await group.send(timeout=20)

    first, second = (request.timeout for request in group.sending.requests)
    assert 0 < second < first == 20


async def test_a_held_request_is_held_at_the_master_as_long_as_it_asked_for() -> None:
    group = Group(is_held=True)
    group.masters[A] = (B, 8)

    await group.send(timeout=20)

    assert [request.timeout for request in group.sending.requests] == [20, 20]


async def test_a_chain_of_redirects_is_followed_and_the_short_way_is_kept() -> None:
    group = Group()
    group.masters |= {A: (B, 8), B: (C, 9)}

    assert (await group.send()).status == 200

    assert group.asked == [A, B, C]
    assert group.book.place(A) == C


async def test_replicas_that_name_each_other_are_not_asked_in_circles() -> None:
    group = Group()
    group.masters |= {A: (B, 8), B: (A, 8)}

    answer = await group.send()

    assert answer.status == 307
    assert group.asked == [A, B]


async def test_an_endless_chain_ends() -> None:
    group = Group()
    for number in range(10):
        group.masters[f"http://r{number}:1"] = (f"http://r{number + 1}:1", number + 1)

    assert (await group.send("http://r0:1")).status == 307

    assert len(group.asked) == 1 + HOPS_MAX


async def test_a_master_of_a_smaller_epoch_is_not_asked() -> None:
    group = Group()
    group.book.learn("broker-a", 8, {0: {"default": B}, 1: {"default": A}})
    group.masters[A] = (C, 7)

    assert (await group.send()).status == 307

    assert group.asked == [A]
    assert group.lost == [A]


async def test_a_master_that_is_unreachable_is_forgotten() -> None:
    async def refuse(request: Request) -> None:
        if request.url == B:
            raise NotConnectedError("refused")

    group = Group()
    group.masters[A] = (B, 8)
    group.on_request = refuse

    with pytest.raises(eruca.TransportError, match="refused"):
        await group.send()
    del group.masters[A]

    assert (await group.send()).status == 200
    assert group.asked == [A, B, A]


async def test_a_remembered_master_that_is_unreachable_is_forgotten() -> None:
    async def refuse(request: Request) -> None:
        if request.url == B and len(group.asked) > 2:
            raise NotConnectedError("refused")

    group = Group()
    group.masters[A] = (B, 8)
    await group.send()
    group.on_request = refuse

    with pytest.raises(eruca.TransportError):
        await group.send()

    assert group.book.place(A) == A
    assert group.lost == [A, A]


async def test_without_a_master_a_sender_hears_it_at_once() -> None:
    group = Group()
    group.masters[A] = None

    answer = await group.send()

    assert (answer.status, group.asked) == (503, [A])


async def test_without_a_master_an_administrator_waits_for_one() -> None:
    async def elect(_request: Request) -> None:
        if len(group.asked) == 3:
            group.book.learn("broker-a", 8, {0: {"default": B}, 1: {"default": A}})

    group = Group(waits=True)
    group.book.learn("broker-a", 7, {0: {"default": A}, 1: {"default": B}})
    group.masters[A] = None
    group.on_request = elect

    assert (await group.send()).status == 200

    assert group.asked == [A, A, A, B]


async def test_replicas_that_name_each_other_are_asked_again_by_who_waits() -> None:
    async def agree(_request: Request) -> None:
        if len(group.asked) == 4:
            del group.masters[B]

    group = Group(waits=True)
    group.masters |= {A: (B, 8), B: (A, 8)}
    group.on_request = agree

    assert (await group.send()).status == 200


async def test_a_master_that_is_gone_is_replaced_while_an_administrator_waits() -> None:
    async def elect(request: Request) -> None:
        if len(group.asked) == 9:
            group.masters[B] = (C, 8)
            del group.masters[C]
        if request.url == A:
            raise NotConnectedError("refused")

    group = Group(waits=True)
    group.book.learn("broker-a", 7, {0: {"default": A}, 1: {"default": B}, 2: {"default": C}})
    group.masters |= {B: (A, 7), C: None}  # one has not noticed it yet
    group.on_request = elect

    assert (await group.send()).status == 200

    assert {*group.asked[:4]} == {A, B, C}
    assert group.asked[-1] == C
    assert group.lost[0] == A


@pytest.mark.parametrize("others", [{}, {1: {"default": B}}], ids=["alone", "nobody waits"])
async def test_who_has_a_retry_policy_or_no_other_replica_hears_of_a_refusal_at_once(
    others: dict[int, dict[str, str]],
) -> None:
    async def refuse(_request: Request) -> None:
        raise NotConnectedError("refused")

    group = Group(waits=not others)
    group.book.learn("broker-a", 7, {0: {"default": A}, **others})
    group.on_request = refuse

    with pytest.raises(eruca.TransportError, match="refused"):
        await group.send()

    assert group.asked == [A]


async def test_a_group_of_which_no_replica_is_left_is_a_refusal_after_the_timeout() -> None:
    async def refuse(_request: Request) -> None:
        raise NotConnectedError("refused")

    group = Group(waits=True)
    group.book.learn("broker-a", 7, {0: {"default": A}, 1: {"default": B}})
    group.on_request = refuse

    with pytest.raises(eruca.TransportError, match="refused"):
        await group.send(timeout=0.2)

    assert {*group.asked} == {A, B}


async def test_waiting_for_a_master_ends_with_the_timeout() -> None:
    group = Group(waits=True)
    group.masters[A] = None

    answer = await group.send(timeout=0.2)

    assert answer.status == 503
    assert len(group.asked) > 1


async def test_other_refusals_are_answers() -> None:
    async def busy(request: Request) -> HttpResponse:
        return problem_answer(eruca.OverloadedError("busy"))

    async def proxy(request: Request) -> HttpResponse:
        return HttpResponse(307, {"location": B}, b"")

    for answer, status in ((busy, 429), (proxy, 307)):
        sending = ScriptedTransport(answer)
        transport = FollowingTransport(sending, MasterBook(), on_redirect=print, waits=True)

        assert (await transport.request("GET", A, "/", timeout=20)).status == status
        assert len(sending.requests) == 1


async def test_closing_closes_the_connections() -> None:
    group = Group()

    await group.transport.close()

    assert group.sending.is_closed


async def test_a_cancelled_request_is_cancelled_at_the_master() -> None:
    is_there = asyncio.Event()

    async def hold(request: Request) -> None:
        if request.url == B:
            is_there.set()
            await asyncio.Event().wait()

    group = Group()
    group.masters[A] = (B, 8)
    group.on_request = hold
    task = asyncio.create_task(group.send())
    await is_there.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
