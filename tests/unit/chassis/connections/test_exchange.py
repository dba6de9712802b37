"""Exchanges: whatever a handler does, whenever a client leaves: one answer, and all given back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import pytest
from anyio import Event
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eruca.contract.errors import ConflictError, NotMasterError
from eruca_chassis.admission.budget import RESERVE_SIZE
from eruca_chassis.asgi import ClientGoneError
from eruca_chassis.connections.exchange import (
    NO_CONTENT,
    Answer,
    AnswerHead,
    BodyLimit,
    Exchange,
    Found,
    PostponedError,
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

    connection = None

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
        limit_size: int = LIMIT_SIZE,
        budget_size: int = BUDGET_SIZE,
    ) -> None:
        self.budget = ManualBudget(budget_size)
        self._limit_size = limit_size
        self.carrier = Carrier()
        self.handled: list[bytes] = []
        self._handle = handle
        route = HotRoute("POST", "/v1/things", self.handle, admit=self.admit)
        request = RequestHead(Found(route, {}), "POST", b"/v1/things", headers or {})
        self.exchange = Exchange(self.carrier, request, None)

    def admit(self, exchange: Exchange) -> None:
        exchange.expect_body(BodyLimit(self.budget, self._limit_size, "things_size_max"))

    def handle(self, exchange: Exchange) -> None:
        self.handled.append(bytes(exchange.body))
        if self._handle is not None:
            self._handle(exchange)
        else:
            exchange.answer(OK, b"done")


def test_a_request_is_paid_for_before_its_body_comes_and_given_back_after() -> None:
    things = Things(headers={b"content-length": b"8"})

    things.exchange.begin()
    assert things.budget.used == LIMIT_SIZE  # less than RESERVE_SIZE, so no more can come
    for piece in (b"four", b"more"):
        things.exchange.add(piece)
    assert things.budget.used == LIMIT_SIZE
    things.exchange.complete()

    assert things.handled == [b"fourmore"]
    assert things.carrier.answers == [(200, b"done")]
    assert things.budget.used == 0


@pytest.mark.parametrize("announced", [None, 300_000])
@pytest.mark.parametrize("piece_size", [1, 1_000, 30_000, 70_000])
def test_a_large_body_is_paid_for_as_it_comes(announced: int | None, piece_size: int) -> None:
    headers = {} if announced is None else {b"content-length": b"%d" % announced}
    things = Things(headers=headers, limit_size=300_000, budget_size=150_000)
    things.exchange.begin()
    assert things.budget.used == RESERVE_SIZE

    come = 0
    while not things.carrier.answers:
        things.exchange.add(bytes(piece_size))
        come += piece_size
        assert things.budget.used in (max(RESERVE_SIZE, come), 0)
    things.exchange.complete()

    assert things.carrier.answers[0][0] == 429
    assert come - piece_size <= 150_000 < come
    assert things.handled == []
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
    if BUDGET_SIZE - used < LIMIT_SIZE:
        assert (status, things.handled) == (429, [])
    elif len(body) <= LIMIT_SIZE:
        assert (status, things.handled) == (200, [body])
    else:
        assert (status, things.handled) == (413, [])
    assert things.budget.used == used


@given(sizes=st.lists(st.sampled_from([1, 7, 5_000, 16_384, 40_000, 70_000]), max_size=40))
def test_a_body_in_many_pieces_is_kept_in_few_objects(sizes: list[int]) -> None:
    things = Things(limit_size=4_000_000, budget_size=4_000_000)
    things.exchange.begin()
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    for piece in pieces:
        things.exchange.add(piece)

    assert len(things.exchange.chunks) <= 2 + 2 * (sum(sizes) // 16_384)
    things.exchange.complete()
    assert things.handled == [b"".join(pieces)]


@pytest.mark.parametrize(
    ("announced", "status"),
    [(b"51", 413), (b"9" * 5_000, 413), (b"50", None), (b"0" * 5_000 + b"40", None)],
    ids=["51", "9…", "50", "0…40"],
)
def test_what_is_announced_too_large_is_refused_unread(
    announced: bytes, status: int | None
) -> None:
    things = Things(headers={b"content-length": announced})
    things.exchange.begin()
    things.exchange.add(b"x")

    assert [answer[0] for answer in things.carrier.answers] == ([status] if status else [])
    assert things.exchange.chunks == ([] if status else [b"x"])


@pytest.mark.parametrize("come", [0, 1, 4_000, 64 * 1024, 200_000])
@pytest.mark.parametrize("step", [100, 1_000, 64 * 1024])
@pytest.mark.parametrize("is_known_head", [False, True])
def test_what_is_missing_of_a_body_is_put_into_a_buffer_that_grows(
    come: int, step: int, *, is_known_head: bool
) -> None:
    body = random.Random(come).randbytes(300_000)
    things = Things(headers={b"content-length": b"300000"}, limit_size=300_000, budget_size=300_000)
    exchange = things.exchange
    exchange.begin()
    if is_known_head:
        exchange.begin_large(memoryview(body)[:come])
    elif come:
        exchange.add(body[:come])

    is_whole = False
    while not is_whole:
        done = exchange.received_size
        room = exchange.room()
        buffer_size = done + len(room)
        assert buffer_size <= max(64 * 1024, done * 8) * (2 if buffer_size == len(body) else 1)
        room = room[:step]
        room[:] = body[done : done + len(room)]
        is_whole = exchange.filled(len(room))
        assert things.budget.used == max(RESERVE_SIZE, exchange.received_size)
    assert exchange.missing_size == 0
    exchange.complete()

    assert things.handled == [body]
    assert isinstance(exchange.body, bytearray)
    assert exchange.buffer is exchange.body


@pytest.mark.parametrize("first_size", [0, 200_000])
def test_a_large_body_that_fits_no_more_is_dropped_to_its_end(first_size: int) -> None:
    things = Things(headers={b"content-length": b"300000"}, limit_size=300_000, budget_size=100_000)
    exchange = things.exchange
    exchange.begin()
    if first_size:
        exchange.begin_large(memoryview(bytes(first_size)))
        assert exchange.status == 429

    is_whole = False
    while not is_whole:
        is_whole = exchange.filled(min(len(exchange.room()), 10_000))
    exchange.complete()

    assert [status for status, _ in things.carrier.answers] == [429]
    assert things.handled == []
    assert exchange.chunks == []
    assert things.budget.used == 0


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
    assert things.budget.used == LIMIT_SIZE
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


def test_a_redirect_names_the_target_as_it_was_sent() -> None:
    route = HotRoute("POST", "/v1/things", redirect)
    head = RequestHead(Found(route, {}), "POST", b"/v1/things?x=%C3%BC&y=1", {})
    exchange = Exchange(Carrier(), head, None)

    exchange.begin()
    exchange.complete()

    assert head.query == b"x=%C3%BC&y=1"
    assert exchange.head is not None
    assert dict(exchange.head.headers)[b"location"] == b"http://a:1/v1/things?x=%C3%BC&y=1"


def redirect(_exchange: Exchange) -> None:
    raise NotMasterError("a standby", epoch=1, master_urls={"default": "http://a:1/"})


class Needed:
    """A thing that a step needs before it can go on."""

    def __init__(self) -> None:
        self.again: list[Callable[[], None]] = []
        self.failed: list[Callable[[BaseException], None]] = []
        self.left = 0
        self.is_there = False

    def handle(self, exchange: Exchange) -> None:
        if not self.is_there:
            raise PostponedError(self.start)
        exchange.answer(OK, b"done")

    def start(
        self, again: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> Callable[[], None]:
        self.again.append(again)
        self.failed.append(failed)
        return self.leave

    def leave(self) -> None:
        self.left += 1


def waiting(needed: Needed) -> Things:
    things = Things(needed.handle)
    things.exchange.begin()
    things.exchange.complete()
    assert things.exchange.is_waiting
    assert things.carrier.answers == []
    return things


def test_a_postponed_step_runs_again_until_it_can_go_on() -> None:
    needed = Needed()
    things = waiting(needed)
    needed.again[0]()
    assert things.carrier.answers == []

    needed.is_there = True
    needed.again[1]()

    assert things.carrier.answers == [(200, b"done")]
    assert len(things.handled) == 3
    assert things.budget.used == 0


def test_a_postponed_step_may_fail() -> None:
    needed = Needed()
    things = waiting(needed)
    needed.failed[0](ConflictError("it will never be there"))
    assert [status for status, _ in things.carrier.answers] == [409]


def test_a_client_that_leaves_ends_the_waiting_of_a_postponed_step() -> None:
    needed = Needed()
    things = waiting(needed)
    assert things.exchange.lose()
    assert needed.left == 1


def test_a_later_step_may_be_postponed() -> None:
    needed = Needed()
    things = Things(lambda exchange: exchange.resume(needed.handle, exchange))
    things.exchange.begin()
    things.exchange.complete()
    needed.is_there = True
    needed.again[0]()

    assert things.carrier.answers == [(200, b"done")]
    assert len(things.handled) == 1
