"""A replica copies a log that RocketMQ began, and then equals the master that took it over."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from eruca.contract.names import HALF_TOPIC, SCHEDULE_TOPIC
from eruca.contract.properties import encode_properties
from eruca.contract.records import BLANK_SIZE_MIN, MAGIC_BLANK, Record, SysFlag, encode_record
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.store.message_store import MessageStore
from support.lived_stores import CLOCK, SEGMENT_SIZE, assert_same, epoch_began, settings
from support.stores import STORE_HOST, abandon, batch

pytestmark = pytest.mark.anyio

NOW = CLOCK.now_ms()
TOPICS = {
    name: {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    for name in ("orders", "bills", SCHEDULE_TOPIC)
}


class RocketMqLog:
    """A log as RocketMQ writes it, with what only it does."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends: dict[tuple[str, int], int] = {}

    def add(
        self,
        topic: str,
        *,
        queue_id: int = 0,
        offset: int | None = None,
        sys_flag: int = 0,
        body: bytes = b"x" * 600,
        **properties: str,
    ) -> None:
        """Append a record; *offset* is another one than the queue's next."""
        key = topic, queue_id
        queue_offset = self._ends.get(key, 0) if offset is None else offset
        record = Record(
            topic=topic,
            body=body,
            queue_id=queue_id,
            queue_offset=queue_offset,
            log_offset=len(self._data),
            store_timestamp=NOW + len(self._data) // 5_000,
            born_timestamp=NOW,
            store_host=STORE_HOST,
            born_host=STORE_HOST,
            sys_flag=sys_flag,
            properties=encode_properties({"KEYS": "all", "TAGS": "red"} | properties),
        )
        room = SEGMENT_SIZE - len(self._data) % SEGMENT_SIZE
        if len(encode_record(record)) + BLANK_SIZE_MIN > room:
            blank = room.to_bytes(4) + MAGIC_BLANK.to_bytes(4)
            self._data += blank.ljust(room, b"\0")
            record = replace(record, log_offset=len(self._data))
        self._data += encode_record(record)
        if not sys_flag & SysFlag.PREPARED:
            self._ends[key] = max(queue_offset + 1, self._ends.get(key, 0))

    def begin_again(self, topic: str) -> None:
        """Let the topic's queues begin at 0 again, as after its deletion."""
        for key in [key for key in self._ends if key[0] == topic]:
            del self._ends[key]

    def end(self) -> int:
        """Return the log's end."""
        return len(self._data)

    def write(self, directory: Path) -> None:
        """Write the log, and RocketMQ's files in ``config/``."""
        (directory / "commitlog").mkdir(parents=True)
        for base in range(0, len(self._data), SEGMENT_SIZE):
            segment = bytes(self._data[base : base + SEGMENT_SIZE]).ljust(SEGMENT_SIZE, b"\0")
            (directory / "commitlog" / f"{base:020d}").write_bytes(segment)
        (directory / "config").mkdir()
        levels = {"offsetTable": {"3": 2}}  # of three messages, two are delivered
        (directory / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": TOPICS}))
        (directory / "config" / "delayOffset.json").write_text(json.dumps(levels))
        (directory / "abort").touch()


def rocketmq_store(directory: Path) -> Path:
    """Write a store with records of every kind that RocketMQ may have written."""
    log = RocketMqLog()
    for number in range(120):
        log.add("orders", queue_id=number % 2, UNIQ_KEY=f"id-{number}")
        if number % 40 == 7:
            log.add(SCHEDULE_TOPIC, queue_id=2, DELAY="3", REAL_TOPIC="orders", REAL_QID="0")
            log.add("bills", offset=0, sys_flag=SysFlag.PREPARED, UNIQ_KEY=f"prepared-{number}")
            log.add("bills", offset=0, sys_flag=SysFlag.ROLLBACK, UNIQ_KEY=f"rolled-{number}")
        log.add("bills")
        if number in (30, 80):
            log.begin_again("bills")
        if number == 100:  # as after a recovery that forgot records
            for offset in (3, 4, 5):
                log.add("bills", offset=offset)
    log.add(HALF_TOPIC, UNIQ_KEY="A", PGROUP="shop", REAL_TOPIC="orders", REAL_QID="1")
    log.write(directory)
    return directory


async def opened(directory: Path, *, is_replica: bool) -> MessageStore:
    return await MessageStore.open(directory, settings(is_replica=is_replica), CLOCK)


@asynccontextmanager
async def open_store(directory: Path, *, is_replica: bool) -> AsyncIterator[MessageStore]:
    store = await opened(directory, is_replica=is_replica)
    yield store
    await store.close()


@pytest.fixture(params=["alone first", "in a group"])
async def master(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MessageStore]:
    """A master that has taken over RocketMQ's store, and has written on."""
    directory = rocketmq_store(tmp_path / "master")
    if request.param == "alone first":
        async with open_store(directory, is_replica=False):
            pass
    store = await opened(directory, is_replica=True)
    await led(store)
    for number in range(40):
        await store.append(batch("orders", 0, [b"y" * 900] * 3, keys=f"more-{number}"), STORE_HOST)
    yield store
    await store.close()


async def led(store: MessageStore) -> None:
    """Let a store begin an epoch, as the only member of its group."""
    store.role.on_durable = None
    await store.role.lead(epoch_began(store.role.epochs().last + 1))


async def catch_up(
    replica: MessageStore,
    master: MessageStore,
    random: Random,
    *,
    until: int | None = None,
    bytes_max: int = 20_000,
) -> None:
    """Feed *replica* runs of random sizes, up to a log offset."""
    end = master.visible_offset if until is None else until
    while (offset := replica.log_max_offset) < end:
        run = b"".join(master.log.run(offset, random.randrange(1, bytes_max)))
        await replica.role.copy(memoryview(run), offset)
        replica.role.confirm(replica.durable_offset)
        assert replica.visible_offset == replica.log_max_offset == offset + len(run)


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_replica_fed_by_runs_of_any_size_equals_its_master(
    master: MessageStore, tmp_path: Path, seed: int
) -> None:
    async with open_store(tmp_path / "replica", is_replica=True) as replica:
        await catch_up(replica, master, Random(seed))

        assert_same(replica, master)
        assert len(replica.timers) == 1
    progress = json.loads((tmp_path / "replica" / "config" / "delayOffset.json").read_bytes())
    assert progress["offsetTable"] == {"3": 2}  # RocketMQ would not deliver again what it has


async def test_a_run_may_be_the_whole_log(master: MessageStore, tmp_path: Path) -> None:
    async with open_store(tmp_path / "replica", is_replica=True) as replica:
        run = b"".join(master.log.pieces(0, master.visible_offset))
        await replica.role.copy(memoryview(run), 0)
        replica.role.confirm(replica.durable_offset)

        assert_same(replica, master)


async def test_a_replica_fed_record_by_record_equals_its_master(
    master: MessageStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path / "replica", is_replica=True) as replica:
        await catch_up(replica, master, Random(3), bytes_max=2)

        assert_same(replica, master)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_replica_goes_on_where_it_was_ended(
    master: MessageStore, tmp_path: Path, *, is_killed: bool
) -> None:
    random = Random(4)
    for end in sorted(random.sample(range(master.visible_offset), 8)):
        replica = await opened(tmp_path / "replica", is_replica=True)
        await catch_up(replica, master, random, until=end)
        await (abandon(replica) if is_killed else replica.close())

    async with open_store(tmp_path / "replica", is_replica=True) as replica:
        await catch_up(replica, master, random)
        assert_same(replica, master)


async def test_a_replica_that_becomes_the_master_goes_on(
    master: MessageStore, tmp_path: Path
) -> None:
    async with open_store(tmp_path / "replica", is_replica=True) as replica:
        await catch_up(replica, master, Random(5))
        ends = {queue_id: replica.queues.range("bills", queue_id) for queue_id in (0, 1)}
        await led(replica)
        receipt = await replica.append(batch("bills", 0, [b"next"]), STORE_HOST)

        assert receipt.queue_offset == ends[0][1]
        assert [it.transaction_id for it in replica.state.transactions] == ["A"]


async def test_a_gap_in_rocketmqs_part_is_refused(tmp_path: Path) -> None:
    """A start refuses it, too."""
    log = RocketMqLog()
    log.add("orders")
    log.add("orders", offset=2)
    log.write(tmp_path / "source")
    run = (tmp_path / "source" / "commitlog" / f"{0:020d}").read_bytes()[: log.end()]

    async with open_store(tmp_path / "replica", is_replica=True) as replica:
        with pytest.raises(RefusedRunError, match="expected queue offset 1 at log offset"):
            await replica.role.copy(memoryview(run), 0)


async def test_a_change_by_rocketmq_is_in_the_log_once_the_group_has_a_master(
    tmp_path: Path,
) -> None:
    """RocketMQ has used the store between two terms."""
    directory = rocketmq_store(tmp_path / "master")
    async with open_store(directory, is_replica=True) as store:
        await led(store)
    added = {"added": {"topicName": "added", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}}
    (directory / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": TOPICS | added})
    )
    for _ in range(2):  # nobody becomes the master before the second start
        store = await opened(directory, is_replica=True)
        await store.upkeep.checkpoint()
        await store.upkeep.save_config()
        await abandon(store)

    async with open_store(directory, is_replica=True) as store:
        await led(store)
        assert store.state.topics["added"].read_queue_count == 3
        async with open_store(tmp_path / "replica", is_replica=True) as replica:
            await catch_up(replica, store, Random(6))
            assert_same(replica, store)
    topics = json.loads((directory / "config" / "topics.json").read_bytes())
    assert topics["writtenBy"] == "eruca"
    assert topics["topicConfigTable"].keys() >= TOPICS.keys() | added.keys()
