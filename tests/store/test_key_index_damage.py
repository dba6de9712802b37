"""A damaged key index: the damage is found, dropped and named, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eruca_broker.core.index.layout import HEADER_SIZE, SLOT_SIZE, entry_position, slot_position
from eruca_broker.store.index import look_ups
from eruca_broker.store.index.index_file import DamagedIndexError
from support.key_indexes import (
    FILE_SIZE,
    FIRST_NAME,
    SLOTS,
    assert_holds,
    files_of,
    found,
    newest_first,
    open_index,
    put,
    some_rows,
)


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def flip(path: Path, position: int, bits: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ bits]))


def closed(root: Path, last: int = 30) -> dict[str, int]:
    """Return the digests of an index of four files, the last one not full."""
    index = open_index(root)
    put(index, some_rows(0, last))
    index.save()
    digests = index.digests()
    index.close()
    return digests


Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "the size": lambda path: os.truncate(path, FILE_SIZE - 1),
    "no content": lambda path: path.write_bytes(b""),
    "a count beyond the capacity": lambda path: overwrite(path, 36, b"\x00\x00\x00\x0a"),
    "a negative count": lambda path: overwrite(path, 36, b"\xff\xff\xff\xff"),
    "the end offset": lambda path: overwrite(path, 31, b"\xff"),
    "the first entry's offset": lambda path: overwrite(
        path, entry_position(SLOTS, 1) + 11, b"\xff"
    ),
    "another file's content": lambda path: path.write_bytes(
        sorted(path.parent.iterdir())[0].read_bytes()
    ),
    "the file": lambda path: path.unlink(),
}
DAMAGES_OF_CONTENT: dict[str, Damage] = {
    "a slot": lambda path: flip(path, slot_position(2) + 3, 0x01),
    "a hash": lambda path: flip(path, entry_position(SLOTS, 3) + 3, 0x02),
    "a time": lambda path: flip(path, entry_position(SLOTS, 3) + 15, 0x40),
    "a chain": lambda path: flip(path, entry_position(SLOTS, 3) + 19, 0x01),
    "an offset": lambda path: flip(path, entry_position(SLOTS, 3) + 10, 0x40),
    "the slot count": lambda path: flip(path, 35, 0x04),
}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("damage", [*DAMAGES, *DAMAGES_OF_CONTENT])
def test_a_damaged_file_is_dropped_with_those_after_it_and_can_be_put_again(
    tmp_path: Path, damage: str, number: int
) -> None:
    digests = closed(tmp_path)
    before = files_of(tmp_path)
    path = tmp_path / "index" / sorted(digests)[number]
    if damage == "another file's content" and number == 0:
        return  # that is its own
    if damage == "a slot" and number == 3:
        return  # the slots of a file that is not full are computed
    (DAMAGES | DAMAGES_OF_CONTENT)[damage](path)

    index = open_index(tmp_path, digests=digests)

    assert [name for name, _ in index.damaged] == [path.name]
    assert index.resume_offset == (100 * (8 * number - 1) if number else 0)
    assert index.resume_offset is not None
    assert_holds(index, some_rows(0, 8 * number - 1))
    put(index, [row for row in some_rows(0, 30) if row[1] >= index.resume_offset])
    assert_holds(index, some_rows(0, 30))
    index.save()
    index.close()
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_digests_a_file_whose_header_is_wrong_is_found(tmp_path: Path, damage: str) -> None:
    digests = closed(tmp_path)
    path = tmp_path / "index" / sorted(digests)[1]
    DAMAGES[damage](path)

    index = open_index(tmp_path)

    dropped = sorted(digests)[2 if damage == "the file" else 1]
    if damage == "the file":  # nothing tells that there was one, but that offsets jump
        assert index.damaged == []
    else:
        assert [name for name, _ in index.damaged] == [dropped]
    index.close()


@pytest.mark.parametrize(
    "damage", [name for name in DAMAGES_OF_CONTENT if name not in ("a slot", "a time")]
)
def test_without_digests_the_newest_file_is_proved_by_its_chains(
    tmp_path: Path, damage: str
) -> None:
    digests = closed(tmp_path)
    path = tmp_path / "index" / sorted(digests)[3]
    DAMAGES_OF_CONTENT[damage](path)

    index = open_index(tmp_path)

    assert [name for name, _ in index.damaged] == [path.name]
    assert_holds(index, some_rows(0, 23))
    index.close()


def test_a_file_more_than_there_were_is_dropped(tmp_path: Path) -> None:
    digests = closed(tmp_path, 32)
    name = "20991231235959999"
    (tmp_path / "index" / name).write_bytes(bytes(FILE_SIZE))

    index = open_index(tmp_path, digests=digests)

    assert [damaged for damaged, _ in index.damaged] == [name]
    assert list(files_of(tmp_path)) == sorted(digests)
    index.close()


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    digests = closed(tmp_path)
    (tmp_path / "index" / "notes.txt").touch()

    index = open_index(tmp_path, digests=digests)

    assert index.damaged == []
    assert (tmp_path / "index" / "notes.txt").exists()
    index.close()


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("previous", range(-1, 10))
def test_what_a_broken_chain_led_to_is_found_all_the_same(
    tmp_path: Path, number: int, previous: int
) -> None:
    """A broken chain leads anywhere, unless it ends there or skips entries it should have."""
    digests = closed(tmp_path)
    index = open_index(tmp_path, digests=digests)
    path = tmp_path / "index" / FIRST_NAME
    slots = [row[0] % SLOTS for row in some_rows(0, 8)]  # of entries 1 to 8
    of_slot = [n for n in range(number) if n == 0 or slots[n - 1] == slots[number - 1]]
    if previous in of_slot:
        return  # nothing in the file tells that this is wrong

    overwrite(path, entry_position(SLOTS, number) + 16, previous.to_bytes(4, signed=True))

    for key_hash in (7, 0, 3, 2, 1):
        assert found(index, key_hash) == newest_first(some_rows(0, 30), key_hash)
        assert list(index.candidates(key_hash)) == newest_first(some_rows(0, 30), key_hash)
    assert FIRST_NAME not in index.digests()
    index.close()


def test_the_entries_behind_a_broken_chain_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ups, "_SEARCH_COUNT", 3)
    digests = closed(tmp_path)
    index = open_index(tmp_path, digests=digests)
    overwrite(tmp_path / "index" / FIRST_NAME, entry_position(SLOTS, 8) + 16, b"\x7f")

    assert found(index, 7) == newest_first(some_rows(0, 30), 7)
    index.close()


def test_a_file_that_was_cut_while_it_was_used_is_named(tmp_path: Path) -> None:
    digests = closed(tmp_path)
    index = open_index(tmp_path, digests=digests)
    os.truncate(tmp_path / "index" / FIRST_NAME, entry_position(SLOTS, 5))

    with pytest.raises(DamagedIndexError, match=f"{FIRST_NAME}: it ends before entry"):
        found(index, 7)
    index.close()


def test_a_slot_beyond_the_entries_is_empty(tmp_path: Path) -> None:
    """RocketMQ leaves such slots behind when it loses entries."""
    closed(tmp_path, 8)
    index = open_index(tmp_path)
    path = tmp_path / "index" / FIRST_NAME
    overwrite(path, HEADER_SIZE, b"\x00\x00\x00\x63" * SLOTS)

    assert found(index, 7) == []

    overwrite(path, HEADER_SIZE, b"\xff" * SLOT_SIZE * SLOTS)
    assert found(index, 7) == []
    index.close()


def test_damage_found_by_a_cut_is_dropped_as_well(tmp_path: Path) -> None:
    """A full file's chains are not checked until it is opened for writing again."""
    closed(tmp_path)
    names = sorted(files_of(tmp_path))
    overwrite(tmp_path / "index" / names[1], entry_position(SLOTS, 3) + 19, b"\x07")

    index = open_index(tmp_path, limit=1200)

    assert [name for name, _ in index.damaged] == [names[1]]
    assert index.resume_offset == 700
    assert list(files_of(tmp_path)) == names[:1]
    put(index, [row for row in some_rows(0, 30) if row[1] >= 700])
    assert_holds(index, some_rows(0, 30))
    index.close()


def test_an_empty_newest_file_whose_header_was_never_written_is_no_damage(tmp_path: Path) -> None:
    closed(tmp_path, 8)
    (tmp_path / "index" / "20231114221420000").write_bytes(bytes(FILE_SIZE))

    index = open_index(tmp_path)

    assert (index.damaged, index.end_offset) == ([], 700)
    index.close()
