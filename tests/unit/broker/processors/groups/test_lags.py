"""The lag of groups, and their loss by retention, over a real store."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from eruca.contract.names import retry_topic
from eruca_broker.core.log.retention import RetentionRules
from eruca_broker.core.state.group_events import CommittedOffset, GroupPut, GroupSettings
from eruca_broker.core.state.group_events import OffsetsCommitted as Committed
from eruca_broker.core.state.topic_events import TopicDeleted, TopicPut
from eruca_broker.loops.retention import RetentionLoop
from eruca_broker.processors.groups import lags as group_lags
from eruca_broker.processors.groups.lags import GroupLags, TopicLag
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import batch, small_settings
from support.waiting import turns_during

pytestmark = pytest.mark.anyio

ALL_MAY_GO = RetentionRules(disk_high_ratio=1e-9, disk_forced_ratio=1e-9, disk_refuse_ratio=1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
    await store.change(TopicPut("orders", 2, 2, "rw"))
    yield store
    await store.close()


async def commit(store: MessageStore, group: str, *offsets: int, topic: str = "orders") -> None:
    commits = [CommittedOffset(topic, queue_id, at) for queue_id, at in enumerate(offsets)]
    await store.change(Committed(group, commits))


async def send(store: MessageStore, count: int, *, size: int = 10, topic: str = "orders") -> None:
    for queue_id in (0, 1):
        for _ in range(count):
            await store.append(batch(topic, queue_id, [b"x" * size]))


async def retain(store: MessageStore, lags: GroupLags) -> None:
    carry_forward = Timers(store, ManualClock()).carry_forward
    await store.upkeep.flush()
    await RetentionLoop(store, ALL_MAY_GO, carry_forward, lags).step()


def told(text: str) -> list[dict[str, object]]:
    """Return the log's lines about lost messages, without their times."""
    lines = [json.loads(line) for line in text.splitlines() if '"retention has deleted' in line]
    return [{name: line[name] for name in line if name != "oldest_stored_at"} for line in lines]


@pytest.fixture
def _json_lines() -> Iterator[None]:
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    yield
    structlog.reset_defaults()


async def test_a_group_s_lag_in_a_topic_is_that_of_all_queues_it_has_begun(
    store: MessageStore,
) -> None:
    await send(store, 5)
    await commit(store, "behind", 2)
    await commit(store, "abreast", 5, 5)
    await commit(store, "beyond", 9, 4)
    await store.change(GroupPut("idle", GroupSettings(), 1))
    lags = GroupLags(store)

    await lags.measure()

    assert sorted(lags.latest) == [
        TopicLag("abreast", "orders", 0, 0),
        TopicLag("behind", "orders", 3, 0),
        TopicLag("beyond", "orders", 1, 0),
    ]
    assert lags.left_out == 0


async def test_a_topic_that_is_gone_has_no_lag_and_a_retry_topic_counts_from_its_begin(
    store: MessageStore,
) -> None:
    retries = retry_topic("billing")
    await store.change(TopicPut(retries, 1, 1, "rw"))
    await store.append(batch(retries, 0, [b"again"]))
    await commit(store, "billing", 0)
    await commit(store, "billing", 0, topic=retries)
    await store.change(TopicDeleted("orders"))
    lags = GroupLags(store)

    await lags.measure()

    assert lags.latest == [TopicLag("billing", retries, 1, 0)]


async def test_the_furthest_behind_are_told_and_others_have_their_turn(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(store, 9)
    for number in range(9):
        await commit(store, f"g{number}", number, 9)
    monkeypatch.setattr(group_lags, "LAGS_MAX", 2)
    monkeypatch.setattr("eruca_broker.processors.pacing.TURN_SECONDS", 0)
    lags = GroupLags(store)

    _, turns = await turns_during(lags.measure())

    assert lags.latest == [TopicLag("g0", "orders", 9, 0), TopicLag("g1", "orders", 8, 0)]
    assert lags.left_out == 7
    assert turns >= 18


@pytest.mark.usefixtures("_json_lines")
async def test_what_retention_takes_unread_is_told_once_for_each_group_and_topic(
    store: MessageStore, capsys: pytest.CaptureFixture[str]
) -> None:
    await commit(store, "behind", 1, 0)
    await commit(store, "abreast", 10, 10)
    await send(store, 10, size=2_000)
    lags = GroupLags(store)

    await retain(store, lags)
    first = [store.queues.range("orders", queue_id)[0] for queue_id in (0, 1)]
    [line] = told(capsys.readouterr().out)
    await lags.measure()
    lost = max(first[0] - 1, 0) + first[1]
    assert (line["group"], line["topic"], line["messages"]) == ("behind", "orders", lost)
    assert max(lags.latest) == TopicLag("behind", "orders", 20 - sum(first), lost)

    await retain(store, lags)
    assert told(capsys.readouterr().out) == []
    await commit(store, "behind", 10, 10)
    await lags.measure()
    assert max(lags.latest) == TopicLag("behind", "orders", 0, 0)


@pytest.mark.usefixtures("_json_lines")
async def test_of_many_losses_few_are_told_one_by_one(
    store: MessageStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lags, "LOSSES_LOGGED_MAX", 2)
    for number in range(5):
        await commit(store, f"g{number}", 0)
    await send(store, 10, size=2_000)

    await retain(store, GroupLags(store))

    lines = told(capsys.readouterr().out)
    assert [line.get("group") for line in lines] == ["g0", "g1", None]
    assert lines[2]["count"] == 3


async def test_a_queue_that_cannot_be_read_hides_nobody_s_losses(
    store: MessageStore, tmp_path: Path
) -> None:
    await commit(store, "both", 0, 0)
    await send(store, 10, size=2_000)
    os.truncate(min((tmp_path / "consumequeue" / "orders" / "0").iterdir()), 0)

    unread = await GroupLags(store).unread_before(store.log_max_offset)

    assert unread["both"]["orders"].stored_at_ms is not None
