"""Clients that work on a broker until it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from support.waiting import until


async def work_until_killed(
    url: str,
    work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]],
    *,
    client_count: int,
    seconds: float,
    is_enough: Callable[[], bool],
    kill: Callable[[], object],
) -> None:
    """Let clients work until the broker is gone; raise any error but its absence.

    Args:
        url: The broker's.
        work: One client's; it goes on until the broker does not answer.
        client_count: How many work side by side, over twice as many connections at most.
        seconds: The moment of the kill, which is what is tested.
        is_enough: Tell whether enough was done by then; the kill waits for it.
        kill: Kill the broker.
    """
    limits = httpx.Limits(max_connections=2 * client_count)
    async with httpx.AsyncClient(base_url=f"{url}/v1", trust_env=False, limits=limits) as client:
        clients = [asyncio.create_task(work(client)) for _ in range(client_count)]
        await asyncio.sleep(seconds)  # the moment is what is tested
        await until(lambda: is_enough() or any(map(asyncio.Task.done, clients)))
        kill()
        for outcome in await asyncio.gather(*clients, return_exceptions=True):
            if not isinstance(outcome, httpx.TransportError):
                assert isinstance(outcome, BaseException)
                raise outcome
