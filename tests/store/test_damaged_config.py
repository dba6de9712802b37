"""``config/`` with any bytes: a projection is rebuilt from the log; RocketMQ's own word is refused.

Each damage is found at the start, said once, and gone after it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import anyio
import pytest
from structlog.testing import capture_logs

from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted, TopicPut
from eruca_broker.core.state.group_events import GroupPut, GroupSettings
from eruca_broker.store.config.rocketmq_json import FILE_SIZE_MAX, UnreadableConfigError
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.rocketmq_stores import Stored, write_log
from support.stores import abandon, all_answers, batch, small_settings

pytestmark = pytest.mark.anyio

CLOCK = ManualClock()
SETTINGS = small_settings()
READ = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
OWN = ("projectionDigests.json", "scrubProgress.json")


def writes(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def flip_high_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] |= 0x80
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    os.truncate(path, FILE_SIZE_MAX + 1)


def make_directory(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "high bit": flip_high_bit,
    "cut": cut,
    "too large": grow,
    "empty": writes(b""),
    "garbage": writes(Random(5).randbytes(5_000)),
    "zeros": writes(bytes(4_096)),
    "nested": writes(b'{"a":' * 200_000),
    "another encoding": writes('{"topicConfigTable": {}}'.encode("utf-16")),
    "surrogate": writes(
        b'{"topicConfigTable": {"\\ud800": {}}, "offsetTable": {"\\ud800@g": {}},'
        b' "subscriptionGroupTable": {"\\ud800": {}}}'
    ),
    "twice": writes(b'{"offsetTable": {}, "offsetTable": {}}'),
    "list": writes(b"[]"),
    "null": writes(b"null"),
    "number": writes(b"1e999"),
    "wrong types": writes(
        b'{"topicConfigTable": 5, "offsetTable": [1], "subscriptionGroupTable": "x"}'
    ),
    "infinite": writes(
        b'{"topicConfigTable": {"t": {"readQueueNums": 1e999, "writeQueueNums": 1, "perm": 6}},'
        b' "offsetTable": {"t@g": {"0": 1e999}, "1": 1e999},'
        b' "subscriptionGroupTable": {"g": {"retryMaxTimes": 1e999}}}'
    ),
    "beyond 64 bits": writes(
        b'{"topicConfigTable": {"t": {"readQueueNums": 1, "writeQueueNums": %d, "perm": 6}},'
        b' "offsetTable": {"t@g": {"0": %d}}, "subscriptionGroupTable": {"g": []}}'
        % (1 << 80, 1 << 80)
    ),
    "path as a topic": writes(
        b'{"topicConfigTable": {"../../x": {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}},'
        b' "offsetTable": 1, "subscriptionGroupTable": 1}'
    ),
    "directory": make_directory,
    "dangling link": link_to_nothing,
    "pipe": make_pipe,
}
SAYS_NOTHING = ("dangling link",)  # as a file that is missing


@pytest.fixture(scope="module", params=["stopped", "killed"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store directory as its process has left it."""
    directory = tmp_path_factory.mktemp("left")

    async def live() -> None:
        store = await MessageStore.open(directory, SETTINGS, CLOCK)
        await store.change(TopicPut("orders", 2, 2, "rw"))
        await store.change(GroupPut("g", GroupSettings(retries_max=3), 1))
        await store.append(batch("orders", 0, [b"a", b"b"], keys="k1"))
        await store.change(OffsetsCommitted("g", [CommittedOffset("orders", 0, 1)]))
        await store.upkeep.checkpoint()
        await store.upkeep.save_config()
        await (store.close() if request.param == "stopped" else abandon(store))

    anyio.run(live)
    for name in (*READ, *OWN):
        if not (directory / "config" / name).exists():
            (directory / "config" / name).write_bytes(b'{"writtenBy": "eruca"}')
    return directory


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_config_file_is_rebuilt_and_said_once(
    left: Path, tmp_path: Path, damage: str
) -> None:
    for name in (*READ, *OWN):
        directory = Path(shutil.copytree(left, tmp_path / name))
        sound = {n: (left / "config" / n).read_bytes() for n in READ if n != "delayOffset.json"}
        DAMAGES[damage](directory / "config" / name)

        with capture_logs() as lines:
            store = await MessageStore.open(directory, SETTINGS, CLOCK)
        told = [line for line in lines if name in line.get("fault", "")]
        assert len(told) == (name in READ and damage not in SAYS_NOTHING), (name, lines)
        assert store.state.topics["orders"].write_queue_count == 2
        assert store.state.committed_offset("g", "orders", 0) == 1
        assert store.state.groups["g"].settings.retries_max == 3
        assert set(store.state.groups) == {"g"}
        assert all_answers(store)["orders#k1"]
        await store.close()

        for kept, content in sound.items():
            again = json.loads((directory / "config" / kept).read_bytes())
            expected = json.loads(content)
            assert again.keys() == expected.keys()
            assert {**again, "dataVersion": 0} == {**expected, "dataVersion": 0}
        with capture_logs() as lines:
            await (await MessageStore.open(directory, SETTINGS, CLOCK)).close()
        assert not [line for line in lines if line["log_level"] != "info"]


@pytest.mark.parametrize("name", READ[:3])
@pytest.mark.parametrize("damage", ["high bit", "cut", "empty", "directory", "twice"])
async def test_damage_to_what_only_rocketmq_knows_is_refused_and_left_as_it_is(
    tmp_path: Path, damage: str, name: str
) -> None:
    write_log(tmp_path, [Stored("orders", 0, {})], CLOCK.now_ms())
    (tmp_path / "config").mkdir()
    (tmp_path / "checkpoint").write_bytes(bytes(4_096))
    for each in READ:
        (tmp_path / "config" / each).write_bytes(b'{"dataVersion":{"counter":1}, "offsetTable":{}}')
    path = tmp_path / "config" / name
    DAMAGES[damage](path)
    before = path.read_bytes() if path.is_file() else None

    for _ in range(2):
        with pytest.raises(UnreadableConfigError, match=name):
            await MessageStore.open(tmp_path, SETTINGS, CLOCK)
    assert path.is_dir() if before is None else path.read_bytes() == before


async def test_damage_after_rocketmq_has_had_the_store_is_refused_until_it_is_repaired(
    tmp_path: Path,
) -> None:
    """RocketMQ's consumers may have gone on, and nothing else tells how far."""
    store = await MessageStore.open(tmp_path, SETTINGS, CLOCK)
    await store.change(TopicPut("orders", 2, 2, "rw"))
    await store.close()
    (tmp_path / "checkpoint").write_bytes(bytes(4_096))
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    offsets = tmp_path / "config" / "consumerOffset.json"
    offsets.write_bytes(b'{"offsetTable":{"orders@g":{0:\x805}}}')

    for _ in range(2):
        with pytest.raises(UnreadableConfigError, match=r"found byte 0x80 at byte 30"):
            await MessageStore.open(tmp_path, SETTINGS, CLOCK)
    offsets.write_bytes(b'{"offsetTable":{"orders@g":{0:5}}}')
    store = await MessageStore.open(tmp_path, SETTINGS, CLOCK)

    assert store.state.committed_offset("g", "orders", 0) == 5
    await store.close()


async def test_where_json_ends_is_told_in_bytes_of_the_file_itself(tmp_path: Path) -> None:
    write_log(tmp_path, [Stored("orders", 0, {})], CLOCK.now_ms())
    (tmp_path / "config").mkdir()
    text = '{"offsetTable":{"ä@g":{0 :5,1:6},"x"}}'
    (tmp_path / "config" / "consumerOffset.json").write_text(text, "utf-8")

    with pytest.raises(UnreadableConfigError, match=rf"at byte {len(text.encode()) - 2}$"):
        await MessageStore.open(tmp_path, SETTINGS, CLOCK)
