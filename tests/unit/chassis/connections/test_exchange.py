"""Exchanges: whatever a handler does, whenever a client leaves: one answer, and all given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from anyio import Event
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eruca.contract.errors import ConflictError
from eruca_chassis.asgi import ClientGoneError
from eruca_chassis.connections.exchange import (
    NO_CONTENT,
    Answer,
    AnswerHead,
    BodyLimit,
    Exchange,
    Found,
    RequestHead,
)
from eruca_chassis.connections.hot import HotRoute
from support.budgets import ManualBudget

pytestmark = pytest.mark.anyio
OK = AnswerHead(200, (b"content-type", b"text/plain"))
BUDGET_SIZE = 100
LIMIT_SIZE = 50
HEADERS = {b"x-request-id": b"find-me", b"traceparent": b"00-%b-%b-01" % (b"a" * 32, b"b" * 16)}


class Carrier:
    """Ends what is answered, as a connection does."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.ended = Event()

    def answered(self, exchange: Exchange) -> None:
        self.answers.append((exchange.status, b"".join(exchange.pieces)))
        exchange.give_back()
        self.ended.set()


class Things:
    """A handler and what it is given."""

    def __init__(
        self,
        handle: Callable[[Exchange], None] | None = None,
        *,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.budget = ManualBudget(BUDGET_SIZE)
        self.carrier = Carrier()
        self.handled: list[bytes] = []
        self._handle = handle
        route = HotRoute("POST", "/v1/things", self.handle, admit=self.admit)
        request = RequestHead(Found(route, {}), "POST", b"", headers or {})
        self.exchange = Exchange(self.carrier, request, None)

    def admit(self, exchange: Exchange) -> None:
        exchange.expect_body(BodyLimit(self.budget, LIMIT_SIZE, "things_size_max"))

    def handle(self, exchange: Exchange) -> None:
        self.handled.append(bytes(exchange.body))
        if self._handle is not None:
            self._handle(exchange)
        else:
            exchange.answer(OK, b"done")


def test_an_announced_body_is_paid_for_before_it_comes_and_given_back_after() -> None:
    things = Things(headers={b"content-length": b"8"})

    things.exchange.begin()
    assert things.budget.used == 8
    for piece in (b"four", b"more"):
        things.exchange.add(piece)
    assert things.budget.used == 8
    things.exchange.complete()

    assert things.handled == [b"fourmore"]
    assert things.carrier.answers == [(200, b"done")]
    assert things.budget.used == 0


@given(pieces=st.lists(st.binary(max_size=30), max_size=8), used=st.integers(0, BUDGET_SIZE))
def test_a_body_of_unknown_length_ends_at_its_limit_or_at_the_budgets(
    pieces: list[bytes], used: int
) -> None:
    things = Things()
    things.budget.take(used)

    things.exchange.begin()
    for piece in pieces:
        things.exchange.add(piece)
        assert things.budget.used <= used + LIMIT_SIZE
    things.exchange.complete()

    body = b"".join(pieces)
    [(status, _)] = things.carrier.answers
    if len(body) <= min(LIMIT_SIZE, BUDGET_SIZE - used):
        assert (status, things.handled) == (200, [body])
    else:
        assert (status in (413, 429), things.handled) == (True, [])
    assert things.budget.used == used


@pytest.mark.parametrize(
    ("announced", "status"),
    [(b"51", 413), (b"9" * 5_000, 413), (b"41", 429), (b"40", None), (b"0" * 5_000 + b"40", None)],
    ids=["51", "9…", "41", "40", "0…40"],
)
def test_what_is_announced_too_large_is_refused_unread(
    announced: bytes, status: int | None
) -> None:
    things = Things(headers={b"content-length": announced})
    things.budget.take(60)

    things.exchange.begin()
    things.exchange.add(b"x")

    assert [answer[0] for answer in things.carrier.answers] == ([status] if status else [])
    assert things.exchange.chunks == ([] if status else [b"x"])


@pytest.mark.parametrize("pieces", [[], [b"four"], [b"fo", b"ur"]])
def test_what_is_missing_of_a_body_may_be_put_into_its_buffer(pieces: list[bytes]) -> None:
    things = Things(headers={b"content-length": b"8"})
    exchange = things.exchange
    exchange.begin()
    for piece in pieces:
        exchange.add(piece)

    room = exchange.gather()
    assert len(room) == exchange.missing_size == 8 - sum(map(len, pieces))
    room[:] = b"fourmore"[-len(room) :]
    exchange.complete()

    assert things.handled == [b"fourmore"]
    assert isinstance(exchange.body, bytearray)
    assert exchange.buffer is exchange.body


def test_nothing_is_missing_where_no_size_is_announced_or_the_answer_is_there() -> None:
    unannounced, refused = Things(), Things(headers={b"content-length": b"60"})
    for things in (unannounced, refused):
        things.exchange.begin()
        assert things.exchange.missing_size == 0
    assert refused.carrier.answers[0][0] == 413


@given(pieces=st.lists(st.binary(min_size=1, max_size=9), max_size=5))
def test_a_buffer_is_the_handlers_own(pieces: list[bytes]) -> None:
    things = Things()
    things.exchange.begin()
    for piece in pieces:
        things.exchange.add(piece)

    buffer = things.exchange.buffer
    buffer += b"!"

    assert buffer == b"".join(pieces) + b"!"
    assert things.exchange.body == b"".join(pieces)


def test_an_error_is_the_answer_and_only_a_defect_is_logged() -> None:
    def conflict(_exchange: Exchange) -> None:
        raise ConflictError("somebody else has it")

    def defect(_exchange: Exchange) -> None:
        raise ZeroDivisionError("the secret")

    with capture_logs() as logs:
        for handle, expected in ((conflict, 409), (defect, 500)):
            things = Things(handle, headers=HEADERS)
            things.exchange.begin()
            things.exchange.complete()
            [(status, body)] = things.carrier.answers
            assert status == expected
            assert b'"request_id":"find-me"' in body
            assert b"secret" not in body

    [entry] = logs
    assert (entry["request_id"], entry["route"]) == ("find-me", "/v1/things")
    assert entry["trace_id"] == "a" * 32
    assert isinstance(entry["exc_info"], ZeroDivisionError)


def test_what_fails_behind_its_answer_is_logged_and_answers_nothing_more() -> None:
    def answer_and_fail(exchange: Exchange) -> None:
        exchange.answer(OK, b"done")
        raise ZeroDivisionError

    things = Things(answer_and_fail)
    with capture_logs() as logs:
        things.exchange.begin()
        things.exchange.complete()

    assert things.carrier.answers == [(200, b"done")]
    assert len(logs) == 1


def test_a_client_lost_in_mid_upload_leaves_nothing_to_do() -> None:
    things = Things()
    things.exchange.begin()
    things.exchange.add(b"half")

    assert things.exchange.lose()

    things.exchange.give_back()
    assert (things.budget.used, things.handled) == (0, [])


def test_a_client_lost_while_something_is_waited_for_ends_the_wait() -> None:
    stopped = []

    def wait(exchange: Exchange) -> None:
        exchange.on_lost = lambda: stopped.append(True)

    things = Things(wait)
    things.exchange.begin()
    things.exchange.complete()

    assert things.exchange.lose()
    assert stopped == [True]


def test_a_client_lost_while_work_goes_on_lets_it_finish() -> None:
    things = Things(lambda _: None)
    things.exchange.begin()
    things.exchange.add(b"body")
    things.exchange.complete()

    assert not things.exchange.lose()
    assert things.budget.used == 4
    things.exchange.answer(OK, b"late")

    assert things.budget.used == 0


async def test_work_in_steps_takes_a_turn_of_the_loop_for_each() -> None:
    taken = []

    def steps(exchange: Exchange) -> Iterator[None]:
        for number in range(3):
            taken.append(number)
            yield
        exchange.answer(OK, b"done")

    things = Things(lambda exchange: exchange.drive(steps(exchange)))
    things.exchange.begin()
    things.exchange.complete()

    for expected in ([0], [0, 1], [0, 1, 2]):
        assert taken == expected
        assert things.carrier.answers == []
        await checkpoint()
    assert things.carrier.answers == [(200, b"done")]


async def test_work_in_steps_ends_when_the_client_is_lost_and_its_errors_are_the_answer() -> None:
    taken = []

    def steps() -> Iterator[None]:
        taken.append(1)
        yield
        raise ConflictError("in the second step")

    lost, kept = (Things(lambda exchange: exchange.drive(steps())) for _ in range(2))
    for things in (lost, kept):
        things.exchange.begin()
        things.exchange.complete()
    assert lost.exchange.lose()
    await checkpoint()

    assert taken == [1, 1]
    assert lost.carrier.answers == []
    assert [status for status, _ in kept.carrier.answers] == [409]


def test_a_head_says_what_it_must_and_closes_if_it_does() -> None:
    head = AnswerHead(201, (b"a", b"b"))

    assert head.encoded(7, "id-1", closes=False) == (
        b"HTTP/1.1 201 Created\r\na: b\r\ncontent-length: 7\r\nx-request-id: id-1\r\n\r\n"
    )
    assert b"\r\nconnection: close\r\n" in head.encoded(7, "id-1", closes=True)


def test_no_content_has_no_length_either() -> None:
    head = NO_CONTENT.encoded(0, "id-1", closes=False)

    assert head == b"HTTP/1.1 204 No Content\r\nx-request-id: id-1\r\n\r\n"


async def test_what_a_coroutine_returns_or_raises_is_the_answer() -> None:
    async def steps(error: Exception | None) -> Answer:
        await checkpoint()
        if error is not None:
            raise error
        return OK, b"do", b"ne"

    answers = []
    for error in (None, ConflictError("no")):
        things = Things(lambda exchange, error=error: exchange.go_on(steps(error)))  # type: ignore[misc]
        things.exchange.begin()
        things.exchange.complete()
        assert things.carrier.answers == []
        await things.carrier.ended.wait()
        answers += things.carrier.answers

    assert answers[0] == (200, b"done")
    assert answers[1][0] == 409


@pytest.mark.parametrize("outcome", ["gone", "error", "answer"])
async def test_a_client_that_leaves_while_a_coroutine_waits_for_it_ends_the_exchange(
    outcome: str,
) -> None:
    told = Event()

    async def steps(exchange: Exchange) -> Answer:
        assert (await exchange.leaving())["type"] == "http.disconnect"
        told.set()
        if outcome == "answer":
            return OK, b"late"
        raise ClientGoneError if outcome == "gone" else ConflictError("too late")

    things = Things(lambda exchange: exchange.go_on(steps(exchange)))
    things.exchange.begin()
    things.exchange.complete()
    await checkpoint()

    assert things.exchange.lose()  # … and its carrier has ended it
    await told.wait()
    await checkpoint()
    assert things.carrier.answers == []


async def test_a_client_that_has_left_before_it_is_waited_for_is_noticed_at_once() -> None:
    async def steps(exchange: Exchange) -> Answer:
        await exchange.leaving()
        raise ClientGoneError

    things = Things(lambda exchange: exchange.go_on(steps(exchange)))
    things.exchange.begin()
    things.exchange.complete()

    assert not things.exchange.lose()
    await things.carrier.ended.wait()
    assert things.carrier.answers == [(0, b"")]  # ended, and answered by nothing
