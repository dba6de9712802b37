"""Transactional sends, half message and commit, compared with plain awaited sends.

Rates depend on what else the machine does, so each kind also has its cost: the CPU time of the
broker and of the client for each message.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio
import uvloop

import eruca
from bench.batches import BODY_SIZE, TOPIC
from bench.http_rows import WARM, create_topic
from bench.machine import cpu_seconds
from bench.report import Report
from bench.servers import Server, broker, name_server

_GROUP: Final = "bench"
_IN_FLIGHT: Final = (1, 64)  # a single task, and many that the SDK can gather into batches
_ROUNDS: Final = 3  # of both kinds in turn, so that a neighbour on the machine affects both
_WARM_UP: Final = 200  # messages
_BODY: Final = bytes(BODY_SIZE)


@dataclass(slots=True)
class _Spent:
    """The messages that one kind of send has sent, and the time that they took."""

    count: int = 0
    seconds: float = 0.0
    broker_seconds: float = 0.0  # of CPU time
    client_seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cost(self) -> str:
        broker, client = (s / self.count * 1e6 for s in (self.broker_seconds, self.client_seconds))
        return f"{broker:,.0f} + {client:,.0f} µs"


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with name_server() as namesrv, broker(namesrv_urls=namesrv.url, **WARM) as server:
        create_topic(server, TOPIC, 4)
        uvloop.run(_sends(report, server, namesrv.url, seconds))


async def _sends(report: Report, server: Server, namesrv_url: str, seconds: float) -> None:
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
            spent = {plain: _Spent(), transactional: _Spent()}
            for send in spent:
                await _together(in_flight, send, count=_WARM_UP)
            for _ in range(_ROUNDS):
                for send, its in spent.items():
                    began, broker_before = time.perf_counter(), cpu_seconds(server.process_id)
                    client_before = time.process_time()
                    its.count += await _together(in_flight, send, seconds=seconds / _ROUNDS)
                    its.client_seconds += time.process_time() - client_before
                    its.broker_seconds += cpu_seconds(server.process_id) - broker_before
                    its.seconds += time.perf_counter() - began
            sent, other = spent[transactional], spent[plain]
            report.figure(
                f"transactional sends, {in_flight} in flight",
                f"{sent.rate:,.0f} per second; plain sends {other.rate:,.0f}; ratio "
                f"{sent.rate / other.rate:.2f}",
            )
            report.figure(
                f"CPU of broker + client for each, {in_flight} in flight",
                f"{sent.cost}; plain sends {other.cost}",
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
