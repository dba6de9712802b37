"""A broker whose disk was lost, restored from the tier by its program, as clients see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_broker.restoring import EXIT_CODE, restore_from_tier
from eruca_broker.settings import BrokerSettings
from support.brokers import broker_of, client_of, open_broker
from support.delivery_clients import DeliveryClient
from support.stores import without_log_lines
from support.tiers import brought_up, delete_local, tiering_of

pytestmark = pytest.mark.anyio
COUNT = 30
SEGMENT_SIZE = 64 * 1024


@asynccontextmanager
async def broker_at(tmp_path: Path, store: str) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    with without_log_lines():
        async with (
            open_broker(
                tmp_path / store,
                segment_bytes=SEGMENT_SIZE,
                tier_url=str(tmp_path / "tier"),
                tier_upload_rate_max=0,
            ) as app,
            client_of(app) as client,
        ):
            yield app, client


def settings_at(tmp_path: Path, store: str = "new") -> BrokerSettings:
    return BrokerSettings(
        store_dir=tmp_path / store,
        tier_url=str(tmp_path / "tier"),
        disk_high_ratio=1,
        disk_forced_ratio=1,
        disk_refuse_ratio=1,
    )


async def restored_at(tmp_path: Path, **options: str) -> int:
    given = {f"--{name.rstrip('_')}": value for name, value in options.items()}
    return await asyncio.to_thread(restore_from_tier, settings_at(tmp_path), given)


async def answers(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return what clients can ask about the broker's state."""
    paths = ("/topics", "/groups", "/scheduled", "/transactions")
    return {path: (await client.get(path)).raise_for_status().json() for path in paths}


async def life(client: httpx.AsyncClient) -> None:
    """Leave something of every kind: acknowledged, delayed, undecided messages; then many more."""
    sender = DeliveryClient(client)
    await sender.create()
    await sender.send("first")
    await sender.send("later", delay_seconds=3_600)
    half = {"topic": "orders", "producer_group": "shop", "message": {"body": {"text": "half"}}}
    assert (await client.post("/transactions", json=half)).is_success
    await sender.ack(*await sender.receive())
    for number in range(COUNT):
        await sender.send(f"{number} {'x' * 8_000}")


async def test_a_restored_broker_has_messages_groups_delayed_ones_and_transactions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with broker_at(tmp_path, "store") as (app, client):
        await life(client)
        await broker_of(app).store.upkeep.flush()
        await brought_up(tiering_of(app))
        end = tiering_of(app).tiered_to
        before = await answers(client)

    assert await restored_at(tmp_path) == 0

    shown = capsys.readouterr().out
    assert f"log offsets 0 to {end}, from manifest" in shown
    assert f"log offsets from {end} on are used again" in shown
    assert "LOST" not in shown
    async with broker_at(tmp_path, "new") as (app, client):
        assert await answers(client) == before
        group, found = DeliveryClient(client), list[str]()
        while leased := await group.receive():
            found += [one["message"]["body"]["text"].partition(" ")[0] for one in leased]
            await group.ack(*leased)
        assert found == [str(number) for number in range(len(found))], "not the acknowledged one"
        assert COUNT // 2 < len(found) < COUNT, "the open segment is lost"


async def test_messages_that_wait_take_their_segments_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with broker_at(tmp_path, "store") as (app, client):
        await life(client)
        await broker_of(app).store.upkeep.flush()
        await brought_up(tiering_of(app))
        before = await answers(client)
        last = tiering_of(app).tiered_to - SEGMENT_SIZE

    assert await restored_at(tmp_path, from_=str(last)) == 0
    assert "log offsets 0 to" in capsys.readouterr().out
    async with broker_at(tmp_path, "new") as (app, client):
        assert await answers(client) == before


async def test_what_was_carried_forward_needs_no_earlier_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with broker_at(tmp_path, "store") as (app, client):
        await life(client)
        store, tiering = broker_of(app).store, tiering_of(app)
        await store.upkeep.flush()
        await brought_up(tiering)
        await broker_of(app).timers.carry_forward(tiering.tiered_to)
        await broker_of(app).transaction_carrier.carry_forward(tiering.tiered_to)
        await delete_local(store, tiering)
        for number in range(2 * SEGMENT_SIZE // 8_000):
            await DeliveryClient(client).send(f"{number} {'x' * 8_000}")
        await store.upkeep.flush()
        await brought_up(tiering)
        before = await answers(client)
        last = tiering.tiered_to - 2 * SEGMENT_SIZE

    assert await restored_at(tmp_path, from_=str(last)) == 0
    assert f"log offsets {last} to" in capsys.readouterr().out
    async with broker_at(tmp_path, "new") as (app, client):
        assert await answers(client) == before


async def test_what_cannot_be_restored_ends_with_the_reason_and_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await restored_at(tmp_path) == EXIT_CODE
    assert "has no manifest: check ERUCA_BROKER_TIER_URL" in capsys.readouterr().err
    assert await restored_at(tmp_path, from_="all") == EXIT_CODE
    assert capsys.readouterr().err == "--from all: expected a log offset\n"
    alone = BrokerSettings(store_dir=tmp_path / "new")
    assert await asyncio.to_thread(restore_from_tier, alone, {}) == EXIT_CODE
    assert "ERUCA_BROKER_TIER_URL is not set" in capsys.readouterr().err
