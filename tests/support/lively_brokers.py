"""A broker's life: records of every kind, for tests that copy or rebuild a log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import httpx

from eruca_broker.processors.timers import Timers
from support.clocks import ManualClock

QUEUES: Final = {"read_queue_count": 2, "write_queue_count": 2}


async def nothing_more(_number: int) -> None:
    """Do nothing after a round."""


async def live(
    client: httpx.AsyncClient,
    timers: Timers,
    clock: ManualClock,
    random: Random,
    *,
    rounds: int = 12,
    after_round: Callable[[int], Awaitable[None]] = nothing_more,
) -> None:
    """Have a broker store records of every kind, in rounds.

    Args:
        client: Of the broker; paths are below ``/v1``.
        timers: The broker's.
        clock: The broker's.
        random: Of sizes.
        rounds: Their number.
        after_round: Called after each round, with its number.
    """

    async def ask(method: str, path: str, **body: object) -> dict[str, Any]:
        answer = await client.request(method, path, json=body or None)
        assert answer.is_success, answer.text
        answered: dict[str, Any] = answer.json() if answer.content else {}
        return answered

    async def send(topic: str, count: int, **fields: object) -> None:
        clock.advance(0.7)
        messages = [
            {"body": {"text": "x" * random.randrange(2_000)}, **fields} for _ in range(count)
        ]
        await ask("POST", f"/topics/{topic}/messages", messages=messages)

    async def half(outcome: str | None) -> None:
        message = {"body": {"text": "paid"}, "keys": ["k2"]}
        begun = await ask(
            "POST", "/transactions", topic="orders", producer_group="shop", message=message
        )
        if outcome is not None:
            path = f"/transactions/{begun['transaction_id']}:{outcome}"
            await ask("POST", path, producer_group="shop")

    for topic in ("orders", "passing"):
        await ask("PUT", f"/topics/{topic}", **QUEUES)
    await ask("PUT", "/groups/billing", start="earliest", retries_max=2)
    for number in range(rounds):
        await send("orders", 9, keys=[f"k{number % 3}", "all"], tag=["red", "blue"][number % 2])
        await send("passing", 3, keys=["k1"])
        await send("orders", 2, delay_seconds=2 + number)
        await half(["commit", "rollback", None][number % 3])
        received = await ask(
            "POST", "/groups/billing/deliveries", topic="orders", count_max=4, start="earliest"
        )
        handles = [delivery["handle"] for delivery in received["deliveries"]]
        await ask("POST", "/groups/billing/deliveries:ack", handles=handles[:2])
        await ask("POST", "/groups/billing/deliveries:nack", handles=handles[2:])
        clock.advance(1.5)
        while await timers.fire():
            pass
        if number % 4 == 3:
            await ask("DELETE", "/topics/passing")
            await ask("PUT", "/topics/passing", **QUEUES)
            await send("passing", number, tag="red")
        await after_round(number)
