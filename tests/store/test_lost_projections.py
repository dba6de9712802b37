"""Projections come and go: whatever of them is lost, a restart gives the same answers as before.

The store has seen everything that makes this hard: segments that retention has deleted, a queue of
which nothing is left, and a topic that was deleted and came back under its old name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import chain, combinations
from pathlib import Path
from random import Random

import anyio
import pytest

from eruca.contract.errors import UnavailableError
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicDeleted, TopicPut
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.recovery.projection_recovery import Walker
from support.clocks import ManualClock
from support.stores import abandon, all_answers, batch, delete_oldest_segments, small_settings

pytestmark = pytest.mark.anyio

PROJECTIONS = ("consumequeue", "index", "config", "checkpoint")
SUBSETS = list(chain.from_iterable(combinations(PROJECTIONS, count) for count in range(1, 5)))
SETTINGS = small_settings(segment_bytes=12 * 1024, file_entries=50)
CLOCK = ManualClock()

Answers = dict[str, object]


async def fill(store: MessageStore) -> None:
    """Give the store a life."""

    async def send(topic: str, queue_id: int, count: int, **properties: str) -> None:
        CLOCK.advance(1.5)
        bodies = [b"%d" % number * 8 for number in range(count)]
        await store.append(batch(topic, queue_id, bodies, **properties))

    for topic in ("orders", "rare", "passing"):
        await store.change(TopicPut(topic, 2, 2, "rw"))
    await send("rare", 1, 3, keys="k0 all")
    await send("passing", 0, 9, tag="red", keys="k1 all")
    await store.change(OffsetsCommitted("g", [CommittedOffset("passing", 0, 5)]))
    await store.change(TopicDeleted("passing"))
    for number in range(120):
        await send("orders", number % 2, 5, tag=["red", "blue"][number % 2], keys=f"k{number % 3}")
    await store.upkeep.checkpoint()
    assert len(await delete_oldest_segments(store, 2)) == 2
    await store.change(TopicPut("passing", 1, 1, "rw"))
    await send("passing", 0, 2, tag="blue", keys="k1 k2")
    await store.change(OffsetsCommitted("g", [CommittedOffset("orders", 1, 17)]))
    await send("orders", 0, 70, keys="all")
    assert store.log.by_key("orders", "k1", count_max=1, begin_ms=0, end_ms=2**62)  # all is indexed
    assert store.queues.range("rare", 1) == (3, 3)
    assert store.queues.range("passing", 0) == (0, 2)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store directory as its process has left it."""
    directory = tmp_path_factory.mktemp("left")

    async def live() -> None:
        store = await MessageStore.open(directory, SETTINGS, CLOCK)
        await fill(store)
        await (store.close() if request.param == "stopped" else abandon(store))

    anyio.run(live)
    return directory


@pytest.fixture
def directory(left: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(left, tmp_path / "store"))


@pytest.fixture(scope="module")
def expected(left: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    copy = Path(shutil.copytree(left, tmp_path_factory.mktemp("whole") / "store"))
    return anyio.run(answers_of, copy)


async def answers_of(directory: Path) -> Answers:
    store = await MessageStore.open(directory, SETTINGS, CLOCK)
    try:
        return await repaired_answers(store)
    finally:
        await store.close()


async def repaired_answers(store: MessageStore) -> Answers:
    """Ask until nothing is being rebuilt: what is not known meanwhile is said, never guessed."""
    for _ in range(20):
        try:
            return all_answers(store)
        except UnavailableError:
            await store.upkeep.mend_projections()
    raise AssertionError("projections are not repaired")


def lose(directory: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("lost", SUBSETS, ids="+".join)
async def test_losing_projections_changes_no_answer(
    directory: Path, expected: Answers, lost: tuple[str, ...]
) -> None:
    lose(directory, lost)

    assert await answers_of(directory) == expected
    assert await answers_of(directory) == expected  # nor does what has been rebuilt


async def test_losing_one_queue_with_the_digests_changes_no_answer(
    directory: Path, expected: Answers
) -> None:
    lose(directory, ("config", "consumequeue/orders/0"))

    assert await answers_of(directory) == expected
    assert await answers_of(directory) == expected


async def test_a_queue_of_which_nothing_is_left_goes_on_where_it_was(directory: Path) -> None:
    lose(directory, PROJECTIONS)
    store = await MessageStore.open(directory, SETTINGS, CLOCK)

    receipt = await store.append(batch("rare", 1, [b"more"]))
    await store.close()

    assert receipt.queue_offset == 3
    store = await MessageStore.open(directory, SETTINGS, CLOCK)
    assert store.queues.range("rare", 1) == (3, 4)
    await store.close()


def projection_files(directory: Path) -> list[Path]:
    """Return the files of queues and index, as paths below *directory*."""
    found = (directory / name for name in ("consumequeue", "index"))
    files = [path for root in found for path in sorted(root.rglob("*")) if path.is_file()]
    return [path.relative_to(directory) for path in files]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def extend(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(Random(7).randbytes(path.stat().st_size))


DAMAGES = [Path.unlink, cut, empty, extend, fill_with_zeros, fill_with_garbage]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
async def test_a_damaged_projection_is_noticed_whichever_file_it_is(
    directory: Path, expected: Answers, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for path in projection_files(directory):
        copy = Path(shutil.copytree(directory, tmp_path / "copy"))
        damage(copy / path)

        assert await answers_of(copy) == expected, path

        shutil.rmtree(copy)


async def test_a_flipped_bit_is_noticed(directory: Path, expected: Answers, tmp_path: Path) -> None:
    random = Random(11)
    for path in projection_files(directory):
        copy = Path(shutil.copytree(directory, tmp_path / "copy"))
        data = bytearray((copy / path).read_bytes())
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        (copy / path).write_bytes(data)

        assert await answers_of(copy) == expected, path

        shutil.rmtree(copy)


async def test_a_damaged_checkpoint_is_as_good_as_none(directory: Path, expected: Answers) -> None:
    whole = (directory / "checkpoint").read_bytes()
    for position in range(0, 48, 5):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        (directory / "checkpoint").write_bytes(damaged)

        assert await answers_of(directory) == expected, position


async def test_foreign_files_among_the_projections_do_no_harm(
    directory: Path, expected: Answers
) -> None:
    for place in (
        "consumequeue",
        "consumequeue/orders",
        "consumequeue/orders/0",
        "index",
        "config",
    ):
        (directory / place / "notes.txt").write_text("not ours")
    (directory / "consumequeue" / "nobody" / "0").mkdir(parents=True)

    answers = await answers_of(directory)

    assert answers == expected


async def test_queues_of_which_nothing_is_left_are_looked_for_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(directory, ("consumequeue",))
    walks: list[int] = []
    rebuild = Walker.rebuild

    def count_and_rebuild(self: Walker) -> object:
        walks.append(1)
        return rebuild(self)

    monkeypatch.setattr(Walker, "rebuild", count_and_rebuild)
    (directory / "abort").touch()  # as after a kill
    for _ in range(3):
        store = await MessageStore.open(directory, SETTINGS, CLOCK)
        assert store.queues.range("rare", 1) == (3, 3)
        await store.upkeep.checkpoint()
        await abandon(store)

    assert len(walks) == 1
    store = await MessageStore.open(directory, SETTINGS, CLOCK)
    receipt = await store.append(batch("rare", 1, [b"more"]))
    assert (receipt.queue_offset, store.queues.range("rare", 1)) == (3, (3, 4))
    await store.close()


def remove_queue(path: Path) -> None:
    shutil.rmtree(path)


def empty_files(path: Path) -> None:
    for file in path.iterdir():
        os.truncate(file, 0)


@pytest.mark.parametrize("spoil", [remove_queue, empty_files])
async def test_after_a_crash_a_queue_that_lost_its_file_has_what_lies_before_the_last_segment(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    store = await MessageStore.open(tmp_path, SETTINGS, CLOCK)
    await store.change(TopicPut("orders", 2, 2, "rw"))
    for number in range(40):  # keys, or the key index would have the whole log walked
        await store.append(batch("orders", number % 2, [b"x" * 1_000], keys="k"))
    await store.upkeep.checkpoint()
    await abandon(store)
    spoil(tmp_path / "consumequeue" / "orders" / "0")

    for _ in range(2):
        store = await MessageStore.open(tmp_path, SETTINGS, CLOCK)
        await repaired_answers(store)
        assert store.queues.range("orders", 0) == (0, 20)
        assert store.queues.range("orders", 1) == (0, 20)
        await store.close()
