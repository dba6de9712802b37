"""The harness's own view: status of each replica and each group's row, without links."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from chaos.client import World
from chaos.cluster import Party


async def observe(world: World) -> None:
    """Record the status of each replica, and each group's row, until the run has settled."""
    async with asyncio.TaskGroup() as tasks:
        for party in world.cluster.replicas():
            tasks.create_task(_observe(world, party))
        for broker in world.cluster.shape.brokers:
            tasks.create_task(_observe_row(world, broker))


async def _observe(world: World, party: Party) -> None:
    before: dict[str, Any] = {}
    while not world.settled.is_set():
        if party.is_running and not party.is_paused:
            found = await status(world, party, before)
            before = found or before
        await _pause(world)


async def status(
    world: World, party: Party, before: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Ask a replica for its status; record it if it says something else than *before*."""
    asked = {"broker": party.broker, "replica": party.replica}
    begun = world.recorder.now()
    told = await world.cluster.status(party)
    if told is None:
        return None
    seen = {name: told[name] for name in ("epoch", "role", "uid")}
    if seen != {name: (before or {}).get(name) for name in seen}:
        world.recorder.record_at(begun, f"observer-{party.name}", "status", asked, seen)
    return told


async def _observe_row(world: World, broker: str) -> None:
    before: dict[str, Any] = {}
    while not world.settled.is_set():
        begun = world.recorder.now()
        row = await world.cluster.row(broker)
        if row is not None:
            seen = {
                "epoch": row["epoch"],
                "master": row["master"]["replica_id"],
                "in_sync": [one["replica_id"] for one in row["in_sync"]],
            }
            if seen != before:
                asked = {"broker": broker}
                told = {**seen, "reason": row["reason"]}
                world.recorder.record_at(begun, f"observer-{broker}", "row", asked, told)
            before = seen
        await _pause(world)


async def _pause(world: World) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(world.settled.wait(), 0.3)  # the rate of observation
