"""The message store of a master with replicas: durable here, and visible once it is confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from eruca.contract.errors import (
    OutcomeUnknownError,
    RecordNotFoundError,
    StoreFailedError,
    UnavailableError,
)
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.limits import file_size_limit
from support.message_stores import BOTH_MODES, ORDERS, Flushes, bodies, found_by_key, opened, send
from support.stores import abandon, all_answers, batch, small_settings
from support.waiting import until

pytestmark = pytest.mark.anyio


class Durable:
    """The hook of a master with replicas, which confirms nothing by itself."""

    def __init__(self, store: MessageStore) -> None:
        self.offsets: list[int] = []
        self.store = store
        store.role.on_durable = self._moved

    def _moved(self, durable_offset: int) -> None:
        assert durable_offset == self.store.durable_offset
        self.offsets.append(durable_offset)

    async def until_durable(self) -> int:
        """Return the log's end once all of it is durable."""
        store = self.store
        await until(
            lambda: store._writer._log.end_offset == store.log_max_offset == store.durable_offset
        )
        return store.log_max_offset


@pytest.fixture
def durable(store: MessageStore) -> Durable:
    return Durable(store)


@BOTH_MODES
async def test_nothing_is_visible_before_it_is_confirmed(
    store: MessageStore, durable: Durable
) -> None:
    """Rule 7."""
    arrived: list[tuple[str, int]] = []
    store.on_arrival = arrived.extend
    before, answers = store.visible_offset, all_answers(store)

    sending = asyncio.ensure_future(send(store, b"one"))
    changing = asyncio.ensure_future(store.change(TopicPut("late", 1, 1, "rw")))
    await asyncio.sleep(0)
    end = await durable.until_durable()

    assert durable.offsets[-1] == end > before == store.visible_offset == store.confirmed_offset
    assert not sending.done()
    assert not changing.done()
    assert not arrived
    assert all_answers(store) == answers
    assert not bodies(store)
    assert not found_by_key(store)
    assert "late" not in store.state.topics
    assert len(store.log.read(0, 1 << 20).records) == before
    with pytest.raises(RecordNotFoundError):
        store.log.record(before)

    store.role.confirm(end)
    assert store.confirmed_offset == store.visible_offset == end
    assert (await sending).log_offset == before
    assert "late" in store.state.topics
    assert (await changing) < end
    assert ("orders", 0) in arrived
    assert bodies(store) == found_by_key(store) == [b"one"]


@BOTH_MODES
async def test_a_confirmation_publishes_whole_batches_and_groups_in_the_order_of_the_log(
    store: MessageStore, durable: Durable
) -> None:
    """At every offset: between bytes of a record, between records of a batch or of a group."""
    begin = store.visible_offset
    ends = {begin}
    outcomes: list[asyncio.Future[Receipt] | asyncio.Future[list[Receipt]]] = []
    for number in range(3):
        outcomes.append(store.append(batch("orders", 0, [b"a%d" % number, b"b"])))
        ends.add(store._writer._log.end_offset)
        group = [batch("orders", queue_id, [b"c%d" % number]) for queue_id in (0, 1, 0)]
        outcomes.append(store.append_group(group))
        ends.add(store._writer._log.end_offset)
    await asyncio.sleep(0)
    end = await durable.until_durable()

    for offset in range(begin - 1, end + 1):
        store.role.confirm(offset)
        expected = max((e for e in ends if e <= offset), default=begin)
        assert store.visible_offset == expected
        await asyncio.sleep(0)
        assert sum(it.done() for it in outcomes) == sum(begin < e <= expected for e in ends)

    order = [b"a0", b"b", b"c0", b"c0", b"a1", b"b", b"c1", b"c1", b"a2", b"b", b"c2", b"c2"]
    assert bodies(store) == order
    assert bodies(store, 1) == [b"c0", b"c1", b"c2"]


@BOTH_MODES
async def test_a_confirmation_takes_nothing_back_and_leads_nothing_that_is_not_durable(
    store: MessageStore, durable: Durable, flushes: Flushes, mode: FlushMode
) -> None:
    await asyncio.gather(send(store, b"one"), _confirming(store, durable))
    visible = store.visible_offset
    flushes.may_end.clear()
    sending = asyncio.ensure_future(send(store, b"two"))
    await until(lambda: store.log_max_offset > visible)

    store.role.confirm(visible - 1)
    assert store.visible_offset == visible
    store.role.confirm(1 << 60)
    assert store.visible_offset == store.durable_offset
    assert (store.durable_offset == visible) is (mode is FlushMode.SYNC)

    flushes.may_end.set()
    store.role.confirm(await durable.until_durable())
    assert (await sending).queue_offset == 1


async def _confirming(store: MessageStore, durable: Durable) -> None:
    await asyncio.sleep(0)
    store.role.confirm(await durable.until_durable())


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_what_is_durable_may_be_confirmed_though_a_later_flush_fails(
    store: MessageStore, durable: Durable, flushes: Flushes
) -> None:
    first = asyncio.ensure_future(send(store, b"durable"))
    await asyncio.sleep(0)
    end = await durable.until_durable()
    flushes.failing = True
    with pytest.raises(StoreFailedError):
        await send(store, b"in doubt")

    store.role.confirm(store.log_max_offset)

    assert (await first).queue_offset == 0
    assert store.visible_offset == end < store.log_max_offset
    assert bodies(store) == [b"durable"]
    assert store.log.run(end, 1_000) == []  # what a flush has lost must not reach a replica


@BOTH_MODES
async def test_a_failed_write_leaves_those_before_it_to_be_confirmed(
    store: MessageStore, durable: Durable
) -> None:
    first = asyncio.ensure_future(send(store, b"one"))
    await asyncio.sleep(0)
    end = await durable.until_durable()
    with file_size_limit(0), pytest.raises(UnavailableError):
        await send(store, b"refused")
    await store.upkeep.probe_disk()
    second = asyncio.ensure_future(send(store, b"two"))
    await asyncio.sleep(0)
    await durable.until_durable()

    store.role.confirm(end)
    assert bodies(store) == [b"one"]
    store.role.confirm(store.durable_offset)

    assert [(await it).queue_offset for it in (first, second)] == [0, 1]
    assert bodies(store) == [b"one", b"two"]


@BOTH_MODES
@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
async def test_unconfirmed_messages_stay_in_the_log_and_their_senders_know_no_outcome(
    tmp_path: Path, *, is_killed: bool, mode: FlushMode
) -> None:
    store = await opened(tmp_path, small_settings(flush_mode=mode))
    await store.change(ORDERS)
    durable = Durable(store)
    await asyncio.gather(send(store, b"confirmed"), _confirming(store, durable))
    visible = store.visible_offset
    sending = [asyncio.ensure_future(send(store, b"%d" % number)) for number in range(40)]
    await asyncio.sleep(0)
    end = await durable.until_durable()
    if not is_killed:
        await store.upkeep.checkpoint()
        checkpoint = read_checkpoint(tmp_path)
        assert checkpoint is not None
        assert (checkpoint.projected_offset, checkpoint.flushed_offset) == (visible, end)
    await (abandon(store) if is_killed else store.close())

    if not is_killed:
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {OutcomeUnknownError}
    store = await opened(tmp_path, small_settings(flush_mode=mode))
    assert store.confirmed_offset == store.log_max_offset == end
    assert bodies(store) == [b"confirmed", *(b"%d" % number for number in range(40))]
    assert (await send(store, b"next")).queue_offset == 41
    await store.close()


@BOTH_MODES
async def test_a_segment_begun_meanwhile_begins_with_the_state_after_all_that_precedes_it(
    store: MessageStore, durable: Durable, tmp_path: Path, mode: FlushMode
) -> None:
    """Queues of a deleted topic are not in it, although they are still visible."""
    await asyncio.gather(store.change(TopicPut("passing", 1, 1, "rw")), _confirming(store, durable))
    await asyncio.gather(store.append(batch("passing", 0, [b"x"] * 3)), _confirming(store, durable))
    waiting = [asyncio.ensure_future(store.change(TopicDeleted("passing")))]
    for number in range(60):
        waiting.append(asyncio.ensure_future(_sent(store, number)))
        await asyncio.sleep(0)
        await durable.until_durable()
    assert store.segment_count > 1
    assert "passing" in store.state.topics
    store.role.confirm(store.durable_offset)
    await asyncio.gather(*waiting)
    answers = all_answers(store)
    await store.close()

    for path in sorted((tmp_path / "commitlog").iterdir())[:1]:
        path.unlink()
    for name in ("consumequeue", "index"):
        for path in sorted((tmp_path / name).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "checkpoint").unlink()
    store = await opened(tmp_path, small_settings(flush_mode=mode))
    assert store.state.topics.keys() == {"orders", "ERUCA_SYS_EVENTS"}
    assert store.queues.range("passing", 0) == (0, 0)
    assert store.queues.range("orders", 0)[1] == 60
    assert answers["committed"] == all_answers(store)["committed"]
    await store.close()


async def _sent(store: MessageStore, number: int) -> int:
    return (await send(store, b"%d" % number * 200)).queue_offset


def _runs(store: MessageStore, begin: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the runs from *begin* on."""
    while run := b"".join(store.log.run(begin, bytes_max)):
        yield begin, begin + len(run)
        begin += len(run)


@BOTH_MODES
@pytest.mark.parametrize("bytes_max", [1, 300, 900, 1 << 20])
async def test_a_run_reaches_the_written_end_and_divides_nothing_appended_together(
    store: MessageStore, durable: Durable, flushes: Flushes, bytes_max: int
) -> None:
    """Rule 4: a replica may become master with what a run contains."""
    begin = store.visible_offset
    ends = [begin]
    for number in range(30):
        group = [batch("orders", queue_id, [b"x" * 200]) for queue_id in range(number % 4)]
        waiting = store.append_group(group) if group else store.append(batch("orders", 0, [b"y"]))
        ends.append(store._writer._log.end_offset)
        if number == 20:  # the rest is written, but not flushed
            await asyncio.sleep(0)
            await durable.until_durable()
            flushes.may_end.clear()
    await until(lambda: store.log_max_offset == ends[-1])

    runs = list(_runs(store, begin, bytes_max))

    assert runs[-1][1] == store.log_max_offset
    assert all(first[1] == second[0] for first, second in pairwise(runs))
    for first, last in runs:
        assert last in ends
        fitting = [end for end in ends if first < end <= first + bytes_max]
        assert last == max(fitting, default=min(end for end in ends if end > first))
    with pytest.raises(RecordNotFoundError):
        store.log.run(begin + 1, bytes_max)
    with pytest.raises(RecordNotFoundError):
        store.log.run(ends[-1] + 1, bytes_max)
    flushes.may_end.set()
    store.role.confirm(await durable.until_durable())
    await waiting


async def test_without_a_hook_what_is_durable_is_confirmed_at_once(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    durable = Durable(store)
    changing = asyncio.ensure_future(store.change(ORDERS))
    await asyncio.sleep(0)
    await durable.until_durable()
    store.role.on_durable = None

    receipt = await send(store, b"one")

    assert changing.done()
    assert store.visible_offset == store.durable_offset > receipt.log_offset
    await store.close()


@BOTH_MODES
async def test_replicas_learn_of_what_is_written_before_it_is_durable_here(
    store: MessageStore, durable: Durable
) -> None:
    seen: list[tuple[int, int]] = []
    before = store.log_max_offset

    def written(end_offset: int) -> None:
        assert end_offset == store.log_max_offset
        assert b"".join(store.log.run(before, 1 << 20))
        seen.append((end_offset, len(durable.offsets)))

    store.role.on_written = written
    sending = asyncio.ensure_future(send(store, b"one"))
    await until(lambda: bool(durable.offsets))
    end = store.log_max_offset

    assert seen == [(end, 0)]
    assert durable.offsets == [end]
    store.role.confirm(end)
    await sending
