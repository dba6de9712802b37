"""The part of a tier that a replica may copy: its master's history, and nothing unconfirmed."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.copying import TierCopies
from support.clocks import ManualClock
from support.tiers import FaultyRepository, brought_up, opened_tier

pytestmark = pytest.mark.anyio


async def test_segments_of_another_history_are_not_copied(
    store: MessageStore, clock: ManualClock
) -> None:
    """An unclean master has not looked at the tier yet: its log has another epoch there."""
    tiering = await opened_tier(store, clock, FaultyRepository())
    await brought_up(tiering)
    assert tiering.manifest is not None
    segments = tiering.manifest.segments
    copies = TierCopies(store, tiering)

    forked = EpochTable((Epoch(2, segments[2].base + 700, is_unclean=True),))
    assert copies.end_for(EpochTable(), segments[-1].end) == segments[-1].end
    assert copies.end_for(EpochTable(), segments[-1].end - 1) == segments[-2].end
    assert copies.end_for(forked, segments[-1].end) == segments[1].end
    assert copies.end_for(EpochTable((Epoch(2, 0),)), segments[-1].end) == 0
    await tiering.close()


async def test_runs_are_the_logs_bytes_from_any_record_on(
    store: MessageStore, clock: ManualClock
) -> None:
    tiering = await opened_tier(store, clock, FaultyRepository())
    await brought_up(tiering)
    assert tiering.manifest is not None
    end = tiering.manifest.segments[-1].end
    copies = TierCopies(store, tiering)
    read = store.whole_log.read(0, 20_000)

    for begin in (0, read.next_offset):
        copied = bytearray()
        async with aclosing(copies.runs(begin, end)) as runs:
            async for run in runs:
                copied += run
        assert end - 4_000 < begin + len(copied) < end, "up to the last record"
        expected = b"".join(store.log.pieces(begin, begin + len(copied)))
        assert bytes(copied) == expected
    await tiering.close()
