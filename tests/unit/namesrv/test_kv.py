"""The key-value table: the file is always whole, and never behind what was acknowledged."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from eruca.contract.errors import KeyNotFoundError, TooLargeError, UnavailableError
from eruca_namesrv.kv import InvalidKvFileError, KvTable

pytestmark = pytest.mark.anyio
SIZE_MAX = 1_000  # characters


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "names" / "kvConfig.json"


def stored(path: Path) -> object:
    return json.loads(path.read_bytes())


async def test_what_was_put_is_there_after_a_restart(path: Path) -> None:
    table = KvTable.open(path, size_max=SIZE_MAX)
    await table.put("ns", "b", "2")
    await table.put("ns", "a", "ä\n")
    await table.put("other", "a", "1")
    await table.delete("other", "a")
    await table.close()

    reopened = KvTable.open(path, size_max=SIZE_MAX)

    assert list(reopened.entries("ns").items()) == [("a", "ä\n"), ("b", "2")]
    assert reopened.entries("other") == {}
    assert stored(path) == {"configTable": {"ns": {"a": "ä\n", "b": "2"}}}


def test_a_file_of_rocketmq_is_taken_over(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"a:4;b:4"}}}')

    assert KvTable.open(path, size_max=SIZE_MAX).get("ORDER_TOPIC_CONFIG", "t") == "a:4;b:4"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"configTable": {"n": {"k": 1}}}'])
def test_a_file_that_is_no_table_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)

    with pytest.raises(InvalidKvFileError, match=str(path)):
        KvTable.open(path, size_max=SIZE_MAX)

    assert path.read_bytes() == content


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidKvFileError, match=f"{tmp_path} cannot be read: Is a directory"):
        KvTable.open(tmp_path, size_max=SIZE_MAX)


@pytest.mark.parametrize("place", ["file/kv.json", "x" * 256, "x" * 255])
def test_a_file_that_cannot_be_made_is_named_at_once(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidKvFileError, match=f"{place} cannot be .*: .*ERUCA_NAMESRV_KV_FILE"):
        KvTable.open(tmp_path / place, size_max=SIZE_MAX)


def test_a_file_where_nobody_can_write_is_read_without_a_lock(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"configTable":{"ns":{"k":"v"}}}')
    path.with_name(path.name + ".lock").mkdir()  # stands in the way, as a read-only disk does

    assert KvTable.open(path, size_max=SIZE_MAX).get("ns", "k") == "v"


async def test_a_change_that_cannot_be_written_did_not_happen(path: Path) -> None:
    table = KvTable.open(path, size_max=SIZE_MAX)
    await table.put("ns", "k", "before")
    path.with_name(path.name + ".new").mkdir()  # stands in the way of the new file

    with pytest.raises(UnavailableError, match=f"cannot be written to {path}: Is a directory"):
        await table.put("ns", "k", "after")
    with pytest.raises(UnavailableError, match="Is a directory"):
        await table.delete("ns", "k")

    assert table.get("ns", "k") == "before"
    await table.close()
    assert KvTable.open(path, size_max=SIZE_MAX).get("ns", "k") == "before"


async def test_a_client_that_leaves_does_not_part_the_table_from_its_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = KvTable.open(path, size_max=SIZE_MAX)
    is_writing, may_end = threading.Event(), threading.Event()

    def slow_fsync(_descriptor: int) -> None:
        is_writing.set()
        assert may_end.wait(60)

    monkeypatch.setattr("eruca_chassis.files.whole_files.os.fsync", slow_fsync)
    putting = asyncio.create_task(table.put("ns", "k", "v"))
    assert await asyncio.to_thread(is_writing.wait, 60)

    putting.cancel()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await putting
    assert table.get("ns", "k") == "v"
    assert stored(path) == {"configTable": {"ns": {"k": "v"}}}


async def test_changes_at_the_same_time_all_happen(path: Path) -> None:
    table = KvTable.open(path, size_max=SIZE_MAX)

    await asyncio.gather(*(table.put("ns", str(i), "x") for i in range(20)))
    await table.close()

    assert len(KvTable.open(path, size_max=SIZE_MAX).entries("ns")) == 20


async def test_a_key_that_is_not_there_is_an_error_to_get_and_to_delete() -> None:
    table = KvTable.open(None, size_max=SIZE_MAX)
    await table.put("ns", "k", "v")

    for namespace, key in (("ns", "other"), ("other", "k")):
        with pytest.raises(KeyNotFoundError, match=key):
            table.get(namespace, key)
        with pytest.raises(KeyNotFoundError, match=key):
            await table.delete(namespace, key)


async def test_the_table_is_capped_by_name_and_a_replaced_value_is_not_counted_twice() -> None:
    table = KvTable.open(None, size_max=SIZE_MAX)
    await table.put("ns", "k", "x" * 999)

    with pytest.raises(TooLargeError, match="kv_characters_max is 1000"):
        await table.put("ns", "l", "x")

    await table.put("ns", "k", "y" * 999)
    assert table.get("ns", "k")[0] == "y"


async def test_a_table_that_is_too_large_already_may_shrink(path: Path) -> None:
    table = KvTable.open(path, size_max=10 * SIZE_MAX)
    for key in "abc":
        await table.put("ns", key, "x" * SIZE_MAX)
    await table.close()
    table = KvTable.open(path, size_max=SIZE_MAX)

    with pytest.raises(TooLargeError):
        await table.put("ns", "a", "x" * (SIZE_MAX + 1))
    await table.put("ns", "a", "short")
    await table.delete("ns", "b")

    assert len(table.get("ns", "c")) == SIZE_MAX
    assert list(table.entries("ns")) == ["a", "c"]
