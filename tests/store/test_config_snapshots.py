"""config/: written for RocketMQ, and read where RocketMQ has written it."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eruca.contract.records import Host
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicDeleted, TopicPut
from eruca_broker.core.state.group_events import GroupPut, GroupSettings
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.config import config_snapshots
from eruca_broker.store.config.config_snapshots import ConfigSnapshot
from eruca_broker.store.config.rocketmq_json import UnreadableConfigError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import StoreSettings
from eruca_chassis.clock import SystemClock

ORDERS = TopicPut("orders", 4, 2, "rw", ordered=True)
SETTINGS = StoreSettings(
    store_host=Host.parse("127.0.0.1", 10911),
    segment_bytes=64 * 1024,
    queue_file_entries=100,
    index_slots=100,
    index_entries=400,
)


def state_of(*events: TopicPut | OffsetsCommitted) -> BrokerState:
    state = BrokerState()
    for event in events:
        state.apply(event, 0)
    return state


def as_rocketmq_writes(directory: Path, name: str, change: dict[str, Any]) -> None:
    """Read a file as RocketMQ does, which drops what it does not know, and write it changed."""
    path = directory / "config" / name
    known = json.loads(path.read_text())
    del known["writtenBy"]
    table = next(known[table] for table in ("topicConfigTable", "offsetTable") if table in known)
    table.update(change)
    path.write_text(re.sub(r'"(\d+)":', r"\1:", json.dumps(known, indent="\t")))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    commits = OffsetsCommitted("billing", [CommittedOffset("orders", 3, 17)])
    config_snapshots.save(tmp_path, ConfigSnapshot.of(state_of(ORDERS, commits), now_ms=1))

    topics, _, offsets = config_snapshots.load(tmp_path)

    assert ORDERS in topics
    assert offsets == [commits]


@pytest.mark.parametrize("groups", [[], ["billing"], ["billing", "shipping", "none"]])
def test_the_offsets_of_all_groups_are_one_table(groups: list[str]) -> None:
    state = state_of(*(TopicPut(f"topic-{number}", 2, 2, "rw") for number in range(3)))
    for group in groups:
        commits = [CommittedOffset(f"topic-{n}", n % 2, 10 * n) for n in range(3)]
        state.apply(OffsetsCommitted(group, [] if group == "none" else commits), 0)

    content = ConfigSnapshot.of(state, now_ms=1).contents()["consumerOffset.json"]

    table = json.loads(content)["offsetTable"]
    assert table == {
        f"topic-{n}@{group}": {str(n % 2): 10 * n}
        for group in groups
        for n in range(3)
        if group != "none"
    }
    assert content == msgspec.json.format(msgspec.json.encode(json.loads(content)), indent=1)


def test_a_snapshot_does_not_change_with_the_state() -> None:
    state = state_of(ORDERS, OffsetsCommitted("billing", [CommittedOffset("orders", 0, 5)]))
    snapshot = ConfigSnapshot.of(state, now_ms=1)
    before = snapshot.contents()

    state.apply(OffsetsCommitted("billing", [CommittedOffset("orders", 0, 6)]), 0)
    state.apply(OffsetsCommitted("shipping", [CommittedOffset("orders", 0, 6)]), 0)
    state.apply(GroupPut("billing", GroupSettings(ordered=True), 7), 0)
    state.apply(TopicDeleted("orders"), 0)

    assert snapshot.contents() == before


@pytest.mark.anyio
async def test_the_files_are_put_together_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    contents = ConfigSnapshot.contents

    def noted(snapshot: ConfigSnapshot) -> dict[str, bytes]:
        threads.append(threading.get_ident())
        return contents(snapshot)

    monkeypatch.setattr(ConfigSnapshot, "contents", noted)
    store = await MessageStore.open(tmp_path, SETTINGS, SystemClock())
    await store.upkeep.save_config()
    await store.close()

    assert threads
    assert threading.get_ident() not in threads


def test_what_eruca_wrote_is_not_foreign(tmp_path: Path) -> None:
    commits = OffsetsCommitted("billing", [CommittedOffset("orders", 3, 17)])
    config_snapshots.save(tmp_path, ConfigSnapshot.of(state_of(ORDERS, commits), now_ms=1))

    assert config_snapshots.load_changes(tmp_path, {}) == ([], [], [])


def test_what_rocketmq_wrote_is_foreign_and_its_bare_keys_are_read(tmp_path: Path) -> None:
    config_snapshots.save(tmp_path, ConfigSnapshot.of(state_of(ORDERS), now_ms=1))
    as_rocketmq_writes(tmp_path, "consumerOffset.json", {"orders@billing": {"0": 5, "12": 6}})

    topics, _, offsets = config_snapshots.load_changes(tmp_path, {})

    assert topics == []
    assert offsets == [
        OffsetsCommitted(
            "billing", [CommittedOffset("orders", 0, 5), CommittedOffset("orders", 12, 6)]
        )
    ]


@pytest.mark.parametrize("torn", [None, "", '{"offsetTable":{"orders@bill'])
def test_a_file_that_rocketmq_was_killed_at_is_read_from_its_backup(
    tmp_path: Path, torn: str | None
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json.bak").write_text('{"offsetTable":{"orders@billing":{0:5\n}}}')
    if torn is not None:
        (config / "consumerOffset.json").write_text(torn)

    offsets = config_snapshots.load(tmp_path).offsets

    assert offsets == [OffsetsCommitted("billing", [CommittedOffset("orders", 0, 5)])]


def test_the_topic_of_which_rocketmq_makes_others_is_left_to_it(tmp_path: Path) -> None:
    config_snapshots.save(
        tmp_path, ConfigSnapshot.of(state_of(TopicPut("TBW102", 8, 8, "rw"), ORDERS), now_ms=1)
    )

    topics = config_snapshots.load(tmp_path).topics

    assert "TBW102" not in {topic.topic for topic in topics}
    assert ORDERS in topics


@pytest.mark.parametrize("text", ["", "[]", "{", '{"topicConfigTable": {"orders": {}}}'])
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(text)

    with pytest.raises(UnreadableConfigError, match="config"):
        config_snapshots.load(tmp_path)


@pytest.mark.anyio
async def test_what_rocketmq_changed_meanwhile_is_carried_into_the_log(tmp_path: Path) -> None:
    store = await MessageStore.open(tmp_path, SETTINGS, SystemClock())
    await store.change(ORDERS)
    await store.change(OffsetsCommitted("billing", [CommittedOffset("orders", 0, 5)]))
    await store.close()
    as_rocketmq_writes(tmp_path, "consumerOffset.json", {"orders@billing": {"0": 9}})
    added = {"topicName": "added", "readQueueNums": 3, "writeQueueNums": 2, "perm": 4}
    as_rocketmq_writes(tmp_path, "topics.json", {"added": added})

    for _ in range(2):  # the second opening knows it from the log
        store = await MessageStore.open(tmp_path, SETTINGS, SystemClock())
        assert store.state.committed_offset("billing", "orders", 0) == 9
        assert store.state.topics["orders"].read_queue_count == 4
        assert store.state.topics["added"].read_queue_count == 3
        assert not store.state.topics["added"].is_writable
        await store.close()
        for path in (tmp_path / "config").iterdir():
            path.unlink()


@pytest.mark.anyio
async def test_damaged_files_do_not_keep_a_store_from_opening(tmp_path: Path) -> None:
    store = await MessageStore.open(tmp_path, SETTINGS, SystemClock())
    await store.change(ORDERS)
    await store.close()
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        (tmp_path / "config" / name).write_text("{")

    store = await MessageStore.open(tmp_path, SETTINGS, SystemClock())
    assert store.state.topics["orders"].write_queue_count == 2
    await store.close()

    topics = config_snapshots.load(tmp_path).topics
    assert ORDERS in topics
