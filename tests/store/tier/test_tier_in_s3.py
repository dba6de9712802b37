"""The tier in S3, as moto has it: the real client, over HTTP, with conditional requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.objects.object_stores import ObjectRepository
from eruca.objects.repositories import PathTakenError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering import tiering as writing
from eruca_broker.store.tiering import uploads
from eruca_broker.store.tiering.restoring import Request, restore
from eruca_broker.store.tiering.scrub import TierScrub
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.object_stores import BUCKET, REGION, Door, door_to, s3_store
from support.stores import batch
from support.tiers import SETTINGS, brought_up, delete_local, fill, pulled

pytestmark = pytest.mark.anyio

HOUR_SECONDS = 3_600.0


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with s3_store() as url:
        yield url


@pytest.fixture
async def door(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    async with door_to(s3_url) as door:
        monkeypatch.setenv("AWS_ENDPOINT", door.url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", REGION)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        yield door


@pytest.fixture
def repository(door: Door, request: pytest.FixtureRequest) -> ObjectRepository:
    return ObjectRepository.of_url(f"s3://{BUCKET}/{request.node.name}", "eruca/broker-a")


def tier_of(
    store: MessageStore, repository: ObjectRepository, clock: ManualClock, keep_hours: float = 0
) -> Tiering:
    settings = replace(SETTINGS, keep_hours=keep_hours)
    return Tiering(store, repository, settings, clock, is_master=True)


async def test_what_is_uploaded_is_read_scrubbed_and_restored(
    store: MessageStore, repository: ObjectRepository, clock: ManualClock, tmp_path: Path
) -> None:
    before = await pulled(store, "orders", 0)
    files = {path.name: path.read_bytes() for path in (store.directory / "commitlog").iterdir()}
    tiering = tier_of(store, repository, clock)
    await tiering.open()
    await brought_up(tiering)
    scrub = TierScrub(tiering, hours=1 / 3600)
    while not scrub.rounds:
        await scrub.step()
    assert tiering.faults.known == {}
    await delete_local(store, tiering)
    assert store.log_min_offset > 0

    assert await pulled(store, "orders", 0) == before

    restored = await restore(repository, tmp_path / "new", Request())
    assert restored.end_offset == tiering.tiered_to
    for path in (tmp_path / "new" / "commitlog").iterdir():
        assert path.read_bytes() == files[path.name]
    await tiering.close()


async def test_of_two_writers_one_creates_an_object(
    repository: ObjectRepository, door: Door
) -> None:
    writes = (repository.create("manifests/1.json", b"%d" % number) for number in range(8))
    outcomes = await asyncio.gather(*writes, return_exceptions=True)

    [won] = [number for number, outcome in enumerate(outcomes) if outcome is None]
    assert sum(isinstance(outcome, PathTakenError) for outcome in outcomes) == 7
    assert await repository.get("manifests/1.json") == b"%d" % won
    await repository.create("manifests/1.json", b"%d" % won)  # a repetition after a lost answer


async def test_two_masters_never_overwrite_each_other(
    store: MessageStore, repository: ObjectRepository, clock: ManualClock
) -> None:
    one, other = tier_of(store, repository, clock), tier_of(store, repository, clock)
    for tiering in (one, other):
        await tiering.open()
    await one.step()
    await other.step()
    await one.step()
    assert one.failure is not None
    assert "another broker" in one.failure
    await brought_up(one)
    assert one.tiered_to == store.retention.segment_ends()[-2]
    await one.close()
    await other.close()


async def test_its_own_retention_deletes_objects(
    store: MessageStore, repository: ObjectRepository, clock: ManualClock
) -> None:
    tiering = tier_of(store, repository, clock, keep_hours=10)
    await tiering.open()
    await brought_up(tiering)
    clock.advance(11 * HOUR_SECONDS)
    await fill(store, clock, 2)
    await brought_up(tiering)
    await delete_local(store, tiering, 3)
    await brought_up(tiering)
    assert tiering.manifest is not None
    gone = {path for one in tiering.manifest.expired for path in one.segment.paths}
    assert len(gone) == 6
    folder = f"{store.state.log_id}/segments"
    assert {f"{store.state.log_id}/{path}" for path in gone} <= {*await repository.sizes(folder)}

    clock.advance(25 * HOUR_SECONDS)
    await store.append(batch("rare", 0, [b"a later one"]))
    await brought_up(tiering)

    kept = {path for one in tiering.manifest.named for path in one.paths}
    assert not kept & gone
    listed = {*await repository.sizes(folder)}
    assert listed == {f"{store.state.log_id}/{path}" for path in kept}
    await tiering.close()


async def test_a_store_that_is_busy_is_asked_again(
    store: MessageStore, repository: ObjectRepository, clock: ManualClock, door: Door
) -> None:
    tiering = tier_of(store, repository, clock)
    await tiering.open()
    door.refusals = 3

    await brought_up(tiering)

    assert door.refused_count == 3
    assert tiering.tiered_to == store.retention.segment_ends()[-2]
    await tiering.close()


async def test_a_store_that_refuses_for_long_fails_the_step_and_loses_nothing(
    store: MessageStore,
    repository: ObjectRepository,
    clock: ManualClock,
    door: Door,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "ANSWER_SECONDS", 1.0)
    before = await pulled(store, "orders", 0)
    tiering = tier_of(store, repository, clock)
    await tiering.open()
    await tiering.step()
    has = tiering.tiered_to
    door.refusals = 10**6

    assert await tiering.step() == writing.RETRY_SECONDS
    assert tiering.failure is not None
    assert "the tier has not answered for 1 s" in tiering.failure
    assert tiering.tiered_to in (0, has)

    door.refusals = 0
    await brought_up(tiering)
    await delete_local(store, tiering)
    assert await pulled(store, "orders", 0) == before
    await tiering.close()
