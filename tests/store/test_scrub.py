"""The scrub over real files: it goes round, keeps its pace, and finds what has been damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.contract.records import LAYOUT_V4
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import STEP_SECONDS, STRETCH_SIZE, Scrub
from support.clocks import ManualClock
from support.limits import file_size_limit
from support.stores import batch, delete_oldest_segments, small_settings, without_log_lines

pytestmark = pytest.mark.anyio

SEGMENT_SIZE = 24 * 1024
BODY = b"0123456789" * 100
AT_ONCE = STEP_SECONDS / 3600  # hours: a round in each step


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def filled(
    directory: Path, *, batches: int = 30, body: bytes = BODY
) -> tuple[MessageStore, list[int]]:
    """Return an open store with flushed messages in several segments, and their log offsets."""
    settings = small_settings(segment_bytes=max(SEGMENT_SIZE, 4 * len(body)))
    store = await MessageStore.open(directory, settings, ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    offsets = [(await store.append(batch("orders", 0, [body]))).log_offset for _ in range(batches)]
    await store.upkeep.flush()
    return store, offsets


def file_of(directory: Path, store: MessageStore, log_offset: int) -> Path:
    base = log_offset // store.segment_bytes * store.segment_bytes
    return directory / "commitlog" / f"{base:020d}"


def flip(directory: Path, store: MessageStore, log_offset: int) -> None:
    """Change one bit of the log."""
    with file_of(directory, store, log_offset).open("r+b") as file:
        file.seek(log_offset % store.segment_bytes)
        byte = file.read(1)[0]
        file.seek(log_offset % store.segment_bytes)
        file.write(bytes((byte ^ 1,)))


async def go_round(scrub: Scrub) -> None:
    rounds = scrub.rounds
    while scrub.rounds == rounds:
        await scrub.step()


async def test_a_sound_log_is_gone_round_again_and_again(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path)
    assert store.segment_count > 1
    scrub = Scrub(store, hours=AT_ONCE)

    for number in range(1, 4):
        await go_round(scrub)
        assert (scrub.rounds, scrub.damaged_count, scrub.offset) == (number, 0, 0)

    await store.close()


async def test_damaged_records_are_found_in_each_round_until_they_are_repaired(
    tmp_path: Path,
) -> None:
    store, offsets = await filled(tmp_path)
    places = [offset + LAYOUT_V4.body for offset in (offsets[3], offsets[4], offsets[-1])]
    for place in places:
        flip(tmp_path, store, place)
    scrub = Scrub(store, hours=AT_ONCE)

    await go_round(scrub)
    assert scrub.damaged_count == 3
    await go_round(scrub)
    assert scrub.damaged_count == 3

    for place in places:
        flip(tmp_path, store, place)
    await go_round(scrub)
    await go_round(scrub)
    assert scrub.damaged_count == 0
    await store.close()


async def test_what_it_finds_is_logged_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, offsets = await filled(tmp_path)
    flip(tmp_path, store, offsets[5] + LAYOUT_V4.body)

    await go_round(Scrub(store, hours=AT_ONCE))

    told = capsys.readouterr().out
    assert "a record of the log is damaged" in told
    assert f"log_offset={offsets[5]}" in told
    assert str(file_of(tmp_path, store, offsets[5])) in told
    await store.close()


async def test_a_file_that_cannot_be_read_is_damage_and_the_next_is_read(tmp_path: Path) -> None:
    store, offsets = await filled(tmp_path, batches=60)
    assert store.segment_count > 2
    lost = file_of(tmp_path, store, store.segment_bytes)
    lost.rename(lost.with_suffix(".away"))
    flip(tmp_path, store, offsets[-1] + LAYOUT_V4.body)
    scrub = Scrub(store, hours=AT_ONCE)

    await go_round(scrub)

    assert scrub.damaged_count == 2
    lost.with_suffix(".away").rename(lost)
    await store.close()


async def test_a_size_that_is_damaged_in_the_segment_being_filled_holds_up_no_round(
    tmp_path: Path,
) -> None:
    store, offsets = await filled(tmp_path)
    flip(tmp_path, store, offsets[-1] + 2)  # larger by 256 than it is, or smaller
    scrub = Scrub(store, hours=AT_ONCE)

    for _ in range(10):
        await scrub.step()

    assert scrub.rounds > 1
    assert scrub.damaged_count > 0
    await store.close()


async def test_records_larger_than_what_is_read_at_a_time_are_proved(tmp_path: Path) -> None:
    store, offsets = await filled(tmp_path, batches=5, body=bytes(range(256)) * 4_000)
    assert offsets[1] - offsets[0] > STRETCH_SIZE
    flip(tmp_path, store, offsets[2] + 1_000_000)
    scrub = Scrub(store, hours=AT_ONCE)

    await go_round(scrub)

    assert scrub.damaged_count == 1
    await store.close()


async def test_a_round_takes_its_time(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path, batches=200)
    steps = 50
    share = store.flushed_offset / steps
    scrub = Scrub(store, hours=steps * AT_ONCE)

    for number in range(1, steps):
        await scrub.step()
        assert share * number <= scrub.offset <= share * number + store.segment_bytes

    assert scrub.rounds == 0
    await go_round(scrub)
    await store.close()


async def test_it_goes_on_behind_what_retention_has_deleted(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path, batches=60)
    scrub = Scrub(store, hours=1_000)
    await scrub.step()
    assert 0 < scrub.offset <= store.segment_bytes
    assert await delete_oldest_segments(store, 2) == [store.segment_bytes, 2 * store.segment_bytes]

    fast = Scrub(store, hours=AT_ONCE)
    fast.offset = scrub.offset
    await go_round(fast)

    assert (fast.offset, fast.damaged_count) == (2 * store.segment_bytes, 0)
    await store.close()


async def test_what_is_not_flushed_yet_is_left_for_later(tmp_path: Path) -> None:
    store, offsets = await filled(tmp_path)
    receipt = await store.append(batch("orders", 0, [BODY]))
    flip(tmp_path, store, receipt.log_offset + LAYOUT_V4.body)
    assert store.flushed_offset <= receipt.log_offset
    scrub = Scrub(store, hours=AT_ONCE)

    await go_round(scrub)
    assert scrub.damaged_count == 0

    await store.upkeep.flush()
    await go_round(scrub)
    assert scrub.damaged_count == 1
    assert receipt.log_offset > offsets[-1]
    await store.close()


async def test_a_round_outlasts_restarts(tmp_path: Path) -> None:
    store, offsets = await filled(tmp_path)
    flip(tmp_path, store, offsets[0] + LAYOUT_V4.body)
    flip(tmp_path, store, offsets[-1] + LAYOUT_V4.body)
    come_to: list[int] = []
    while not come_to or come_to[-1] > 0:
        scrub = Scrub(store, hours=10 * AT_ONCE)
        await scrub.step()  # and the process ends
        come_to.append(scrub.offset)

    assert come_to[:-1] == sorted(set(come_to[:-1]))
    assert scrub.rounds == 1
    assert scrub.damaged_count == 2
    await store.close()


@pytest.mark.parametrize(
    "saved",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"log_offset": 70000}',
        b'{"log_offset": 24600}',  # amid a record of the second segment
        b'{"log_offset": 49000}',  # … of the third
        b'{"log_offset": -5}',
        b'{"log_offset": 9223372036854775807}',
    ],
)
async def test_what_was_saved_of_another_log_is_no_damage_of_this_one(
    tmp_path: Path, saved: bytes
) -> None:
    store, _ = await filled(tmp_path)
    (tmp_path / "config" / "scrubProgress.json").write_bytes(saved)
    scrub = Scrub(store, hours=AT_ONCE)

    await scrub.step()
    await go_round(scrub)
    await go_round(scrub)

    assert scrub.damaged_count == 0
    await store.close()


async def test_without_room_to_save_its_progress_it_goes_on(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path)
    scrub = Scrub(store, hours=AT_ONCE)

    with file_size_limit(0), without_log_lines():
        await go_round(scrub)

    assert scrub.rounds == 1
    await store.close()
