"""Answers go out in the order of their requests, hot and ordinary ones."""

from __future__ import annotations

import asyncio
import json

import pytest

from eruca_chassis.connections.connections import AHEAD_MAX
from support.exchanges import (
    LATE,
    MIB,
    ORDINARY,
    Connection,
    Things,
    answer_of,
    bodies_of,
    said,
)
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_answers_go_out_in_the_order_of_their_requests_whenever_they_come(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(b"".join(LATE % number for number in range(4)) + said(b"at once"))
    await until(lambda: len(things.late) == 4)

    for name in ("2", "1", "0", "3"):
        things.release(name)

    assert await bodies_of(reader, 5) == [b"0", b"1", b"2", b"3", b"at once"]


@pytest.mark.parametrize("piece_size", [1, 33, 100_000])
async def test_hot_and_ordinary_requests_take_turns(
    things: Things, connection: Connection, piece_size: int
) -> None:
    reader, writer = connection
    sent = b"".join(said(b"%d" % number) + ORDINARY * (number % 3) for number in range(20))

    async def send() -> None:
        for start in range(0, len(sent), piece_size):
            writer.write(sent[start : start + piece_size])
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    for number in range(20):
        assert (await answer_of(reader))[2] == b"%d" % number
        for _ in range(number % 3):
            assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
    await sending
    assert things.budget.used == 0


async def test_an_ordinary_request_waits_for_hot_ones_before_it(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(LATE % 1 + ORDINARY + LATE % 2)
    await until(lambda: "1" in things.late)

    things.release("1")

    assert (await answer_of(reader))[2] == b"1"
    assert json.loads((await answer_of(reader))[2]) == {"status": "ok"}
    await until(lambda: "2" in things.late)
    things.release("2")
    assert (await answer_of(reader))[2] == b"2"


async def test_a_client_far_ahead_is_held_back_and_then_answered(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    count = 3 * AHEAD_MAX
    writer.write(LATE % 0 + b"".join(said(b"%d" % number) for number in range(count)))
    await until(lambda: "0" in things.late)

    things.release("0")

    assert await bodies_of(reader, 1 + count) == [b"0", *(b"%d" % n for n in range(count))]


async def test_small_answers_behind_a_large_one_wait_until_it_is_read(
    things: Things, connection: Connection
) -> None:
    reader, writer = connection
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
    size = 30 * MIB // 100_000 * 100_000
    writer.write(
        b"GET /v1/large/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % size + said(b"x") * 3 + LATE % 1
    )
    await until(lambda: "1" in things.late)
    assert things.budget.used >= size  # its last piece is not with the kernel yet
    writer.transport.resume_reading()  # type: ignore[attr-defined]

    body = (await answer_of(reader))[2]

    assert (len(body), body[:7], body[-4:]) == (size + 10, b"begin \0", b" end")
    assert await bodies_of(reader, 3) == [b"x"] * 3
    assert things.budget.used == 0
    things.release("1")
    assert (await answer_of(reader))[2] == b"1"
