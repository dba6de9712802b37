"""A store that was lost is restored from the tier: killed anywhere, in part, and what it lacks."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.contract.errors import TransportError
from eruca_broker.core.tier.restoring import UnrestorableError
from eruca_broker.store.files.directory_lock import LOCK_NAME, StoreLockedError, lock_directory
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier.sides import DamagedSegmentError
from eruca_broker.store.tiering import restoring
from eruca_broker.store.tiering.restoring import UNFINISHED_NAME, Request, restore
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.stores import small_settings, without_log_lines
from support.tiers import (
    SETTINGS,
    FaultyRepository,
    brought_up,
    fill,
    pulled,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def repository(store: MessageStore, clock: ManualClock) -> AsyncIterator[FaultyRepository]:
    """A tier that has all closed segments of the store."""
    repository = FaultyRepository()
    tiering = tier_of(store, repository, clock)
    await tiering.open()
    await brought_up(tiering)
    yield repository
    await tiering.close()


def tier_of(store: MessageStore, repository: FaultyRepository, clock: ManualClock) -> Tiering:
    return Tiering(store, repository, SETTINGS, clock, is_master=True)


async def test_a_restored_store_has_the_log_up_to_the_tiers_end_byte_for_byte(
    store: MessageStore, repository: FaultyRepository, clock: ManualClock, tmp_path: Path
) -> None:
    end = store.retention.segment_ends()[-2]
    before = await pulled(store, "orders", 0)
    files = log_of(store.directory)

    restored = await restore(repository, tmp_path / "new", Request())

    assert (restored.min_offset, restored.end_offset) == (0, end)
    assert log_of(tmp_path / "new") == {
        name: data for name, data in files.items() if int(name) < end
    }
    with without_log_lines():
        new = await MessageStore.open(tmp_path / "new", small_settings(), clock)
    after = await pulled(new, "orders", 0)
    assert after == before[: len(after)]
    assert (new.state.log_id, new.log_max_offset) == (store.state.log_id, end)
    assert new.state.topics.keys() == store.state.topics.keys()
    tiering = tier_of(new, repository, clock)
    await tiering.open()
    await fill(new, clock, 2)
    await brought_up(tiering)
    assert tiering.manifest is not None
    assert tiering.manifest.end_offset == new.retention.segment_ends()[-2]
    assert tiering.manifest.abandoned == []
    await tiering.close()
    await new.close()


async def test_a_restore_of_the_latest_segments_reads_the_others_from_the_tier(
    store: MessageStore, repository: FaultyRepository, clock: ManualClock, tmp_path: Path
) -> None:
    before = await pulled(store, "orders", 1)
    last = store.retention.segment_ends()[-3]

    restored = await restore(repository, tmp_path / "new", Request(begin=last))

    assert restored.min_offset == last
    with without_log_lines():
        new = await MessageStore.open(tmp_path / "new", small_settings(), clock)
    tiering = tier_of(new, repository, clock)
    repository.fails = True
    await tiering.open()
    assert new.queues.range("rare", 0) == (0, 1), "known without the tier"
    repository.fails = False
    after = await pulled(new, "orders", 1)
    assert after == before[: len(after)]
    assert after
    await tiering.close()
    await new.close()


async def test_a_restore_that_is_interrupted_at_any_request_goes_on(
    store: MessageStore,
    repository: FaultyRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restoring, "_PAUSE_SECONDS", 0)
    repository.requests = 0
    await restore(repository, tmp_path / "whole", Request())
    needed = repository.requests
    expected = log_of(tmp_path / "whole")

    for requests in range(needed):
        directory = tmp_path / f"killed-{requests}"
        repository.requests_left = requests
        with pytest.raises(TransportError):
            await restore(repository, directory, Request())
        assert not (directory / "commitlog").exists()
        repository.requests_left, repository.requests = None, 0
        await restore(repository, directory, Request())
        assert log_of(directory) == expected
        assert not (directory / UNFINISHED_NAME).exists()
        shutil.rmtree(directory)


async def test_what_a_killed_restore_fetched_is_not_fetched_again(
    store: MessageStore,
    repository: FaultyRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restoring, "_PAUSE_SECONDS", 0)
    repository.requests = 0
    await restore(repository, tmp_path / "whole", Request())
    needed = repository.requests
    repository.requests_left = needed - 3
    with pytest.raises(TransportError):
        await restore(repository, tmp_path / "new", Request())
    repository.requests_left, repository.requests = None, 0

    await restore(repository, tmp_path / "new", Request())

    segments = len(store.retention.segment_ends()) - 1
    assert repository.requests < segments + 10, "heads, the listing, the manifest, and a few chunks"


@pytest.mark.parametrize("is_side", [True, False])
async def test_an_object_that_is_missing_or_damaged_is_named_and_nothing_is_restored(
    store: MessageStore, repository: FaultyRepository, tmp_path: Path, *, is_side: bool
) -> None:
    suffix = ".queues" if is_side else ".log"
    path = max(path for path in repository.objects if path.endswith(suffix))
    sound = repository.objects[path]
    repository.objects[path] = bytes([sound[0] ^ 1]) + sound[1:]
    with pytest.raises(DamagedSegmentError, match=r"is damaged, bytes 0 on; restore the object"):
        await restore(repository, tmp_path / "new", Request())
    del repository.objects[path]
    with pytest.raises(DamagedSegmentError, match=r"the tier lacks segments/"):
        await restore(repository, tmp_path / "new", Request())
    assert not (tmp_path / "new" / "commitlog").exists()

    repository.objects[path] = sound
    await restore(repository, tmp_path / "new", Request())


async def test_a_store_that_is_not_empty_or_in_use_is_refused(
    store: MessageStore, repository: FaultyRepository, tmp_path: Path
) -> None:
    with pytest.raises(UnrestorableError, match=r"is not empty: it has abort"):
        await restore(repository, store.directory, Request())

    (tmp_path / "new").mkdir()
    lock = lock_directory(tmp_path / "new")
    with pytest.raises(StoreLockedError):
        await restore(repository, tmp_path / "new", Request())
    lock.release()
    await restore(repository, tmp_path / "new", Request())
    with pytest.raises(UnrestorableError, match="is not empty"):
        await restore(repository, tmp_path / "new", Request())


async def test_a_refused_restore_leaves_an_empty_store(
    store: MessageStore, repository: FaultyRepository, clock: ManualClock, tmp_path: Path
) -> None:
    for wrong in (Request(high_ratio=0), Request(begin=1 << 60)):
        with pytest.raises(UnrestorableError):
            await restore(repository, tmp_path / "new", wrong)

        assert {path.name for path in (tmp_path / "new").iterdir()} <= {LOCK_NAME}
    with without_log_lines():
        new = await MessageStore.open(tmp_path / "new", small_settings(), clock)
    await new.close()


async def test_a_request_for_what_the_tier_has_not_is_refused(
    store: MessageStore, repository: FaultyRepository, tmp_path: Path
) -> None:
    end = store.retention.segment_ends()[-2]
    for wrong, message in (
        (Request(begin=end), rf"--from {end}: the tier has log offsets 0 to {end}"),
        (Request(high_ratio=0), r"need about (\d+) bytes .* may take 0 more: .* free \1 bytes,"),
        (Request(begin=0, high_ratio=0), "need about"),
        (Request(log_id="other"), "has no manifest of log other"),
    ):
        with pytest.raises(UnrestorableError, match=message):
            await restore(repository, tmp_path / "new", wrong)
    with pytest.raises(UnrestorableError, match="has no manifest: check ERUCA_BROKER_TIER_URL"):
        await restore(FaultyRepository(), tmp_path / "new", Request())
    manifests = {path: data for path, data in repository.objects.items() if "/manifests/" in path}
    for path, data in manifests.items():
        repository.objects[f"other/{path.partition('/')[2]}"] = data
    with pytest.raises(
        UnrestorableError, match=r"has 2 logs: name one of them with --log: .*other"
    ):
        await restore(repository, tmp_path / "new", Request())
    restored = await restore(repository, tmp_path / "new", Request(log_id=store.state.log_id))
    assert restored.end_offset == end


def log_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "commitlog").iterdir()}
