"""The message store: the epochs of its log (rules 2, 3 and 13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.store.message_store import MessageStore
from support.message_stores import BOTH_MODES, ORDERS, opened, send
from support.stores import abandon, delete_oldest_segments, new_term, small_settings

pytestmark = pytest.mark.anyio


def began(epoch: int, *, unclean: bool = False) -> EpochBegan:
    return EpochBegan(epoch, 1, "9f2c51d07ab3e846", f"10.0.0.{epoch}:10911", 0, unclean)


@BOTH_MODES
async def test_an_epoch_counts_from_its_append_and_is_state_once_visible(
    store: MessageStore,
) -> None:
    began_at = store.log_max_offset
    expected = EpochTable((Epoch(4, began_at, is_unclean=True),))

    change = new_term(store, began(4, unclean=True))

    assert (store.role.epochs(), store.state.epochs) == (expected, EpochTable())
    with pytest.raises(AssertionError, match="rule 13"):
        store.role.lead(began(4))
    await change
    assert store.role.epochs() == store.state.epochs == expected


@BOTH_MODES
@pytest.mark.parametrize("epoch", [3, 4])
async def test_no_term_begins_an_epoch_again(store: MessageStore, epoch: int) -> None:
    await new_term(store, began(4))
    end = store.log_max_offset

    with pytest.raises(AssertionError, match="rule 13"):
        store.role.lead(began(epoch))

    assert store.log_max_offset == end


@BOTH_MODES
async def test_an_epoch_that_does_not_fit_begins_with_the_blank_record(store: MessageStore) -> None:
    """The snapshot of the next segment is the new master's, so it comes after that."""
    expected: list[Epoch] = []
    for epoch in range(1, 40):
        end, count = store.log_max_offset, store.segment_count
        expected.append(Epoch(epoch, end))
        receipt = await new_term(store, began(epoch))
        if store.segment_count == count:
            assert receipt.log_offset == end
            await send(store, b"x" * 700)
            continue
        assert receipt.log_offset == count * store.segment_bytes > end
        assert store.log_max_offset > store._snapshots.latest_offset > receipt.log_offset
        break

    assert store.segment_count == count + 1
    assert store.role.epochs() == store.state.epochs == EpochTable(tuple(expected))
    head = store.log.run(end, 1)
    assert sum(map(len, head)) > receipt.log_offset - end, "a run goes on behind the blank record"


@pytest.mark.parametrize("is_killed", [False, True])
async def test_the_epochs_of_the_log_outlive_restarts_and_retention(
    tmp_path: Path, *, is_killed: bool
) -> None:
    """Those that the log has no record of are forgotten, before a restart or after it."""
    store = await opened(tmp_path)
    await store.change(ORDERS)
    for epoch in (1, 2, 3):
        await new_term(store, began(epoch))
        first = store.segment_count
        while store.segment_count == first:
            await send(store, b"x" * 700)
    whole, hosts = store.role.epochs(), store.state.store_hosts
    assert hosts == ("10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911")

    async def again() -> MessageStore:
        await (abandon(store) if is_killed else store.close())
        return await MessageStore.open(tmp_path, small_settings(), store._clock)

    store = await again()
    assert (store.role.epochs(), store.state.store_hosts) == (whole, hosts)
    assert len(await delete_oldest_segments(store, 2)) == 2
    assert (store.role.epochs().epochs, store.state.store_hosts) == (whole.epochs[1:], hosts[1:])

    store = await again()
    assert (store.role.epochs().epochs, store.state.store_hosts) == (whole.epochs[1:], hosts[1:])
    await store.close()
