"""Transactional sends, half message and commit, compared with plain awaited sends."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import uvloop

import eruca
from bench.batches import BODY_SIZE, TOPIC
from bench.http_rows import WARM, create_topic
from bench.report import Report
from bench.servers import broker, name_server

_GROUP: Final = "bench"
_IN_FLIGHT: Final = (1, 64)  # a single task, and many that the SDK can gather into batches
_ROUNDS: Final = 3  # of both kinds in turn, so that a neighbour on the machine affects both
_WARM_UP: Final = 200  # messages
_BODY: Final = bytes(BODY_SIZE)


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with name_server() as namesrv, broker(namesrv_urls=namesrv.url, **WARM) as server:
        create_topic(server, TOPIC, 4)
        uvloop.run(_sends(report, namesrv.url, seconds))


async def _sends(report: Report, namesrv_url: str, seconds: float) -> None:
    async with (
        eruca.AsyncClient([namesrv_url]) as client,
        client.producer() as producer,
        client.transaction_producer(_GROUP) as transactions,
    ):

        async def plain() -> None:
            await producer.send(_message())

        async def transactional() -> None:
            result = await transactions.send_in_transaction(_message(), _at_once)
            assert result.is_decided

        for in_flight in _IN_FLIGHT:
            sent = {plain: 0, transactional: 0}
            for send in sent:
                await _together(in_flight, send, count=_WARM_UP)
            for _ in range(_ROUNDS):
                for send in sent:
                    sent[send] += await _together(in_flight, send, seconds=seconds / _ROUNDS)
            report.figure(
                f"transactional sends, {in_flight} in flight",
                f"{sent[transactional] / seconds:,.0f} per second; plain sends "
                f"{sent[plain] / seconds:,.0f}; ratio {sent[transactional] / sent[plain]:.2f}",
            )


async def _together(
    in_flight: int,
    send: Callable[[], Awaitable[None]],
    *,
    count: int | None = None,
    seconds: float = 60.0,
) -> int:
    """Send with *in_flight* tasks until the time is up or *count* are sent; return the number."""
    done = 0
    ends_at = time.perf_counter() + seconds

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < ends_at and (count is None or done < count):
            await send()
            done += 1

    async with anyio.create_task_group() as group:
        for _ in range(in_flight):
            group.start_soon(work)
    return done


def _message() -> eruca.Message:
    return eruca.Message(TOPIC, _BODY, tag="AA", keys="order-17")


async def _at_once(_half: eruca.HalfMessage) -> eruca.Verdict:
    """Be local work that takes no time."""
    return "commit"
