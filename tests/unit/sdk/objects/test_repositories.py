"""Repositories: one contract, kept by a folder and by every kind of object store at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eruca.contract.errors import TransportError, ValidationError
from eruca.objects.folders import FolderRepository
from eruca.objects.object_stores import ObjectRepository
from eruca.objects.places import folder_of, open_repository
from eruca.objects.repositories import PathTakenError, Repository
from support.limits import file_size_limit

pytestmark = pytest.mark.anyio

Make = Callable[[Path], Repository]


def _local(directory: Path) -> Repository:
    (directory / "objects").mkdir()
    return ObjectRepository.of_url((directory / "objects").as_uri(), "broker-a")


KINDS: dict[str, Make] = {
    "folder": lambda directory: FolderRepository(directory / "broker-a"),
    "memory": lambda _: ObjectRepository.of_url("memory:///", "broker-a"),
    "local": _local,
}


@pytest.fixture(params=KINDS)
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    return KINDS[request.param](tmp_path)


async def test_an_object_is_what_was_put_last(repository: Repository) -> None:
    await repository.put("log/a/1", b"first")
    await repository.put("log/a/1", b"second")

    assert await repository.get("log/a/1") == b"second"
    assert await repository.get_range("log/a/1", 2, 4) == b"co"


async def test_an_object_may_be_empty(repository: Repository) -> None:
    await repository.put("backups/1", b"")

    assert await repository.get("backups/1") == b""
    assert await repository.sizes("backups") == {"backups/1": 0}


async def test_a_path_is_created_once(repository: Repository) -> None:
    await repository.create("backups/1", b"first")

    with pytest.raises(PathTakenError):
        await repository.create("backups/1", b"second")
    assert await repository.get("backups/1") == b"first"


async def test_sizes_are_those_below_a_folder(repository: Repository) -> None:
    assert await repository.sizes("log") == {}

    await repository.put("log/a/1", b"12345")
    await repository.put("log/b/2", b"1")
    await repository.put("backups/1", b"123")

    assert await repository.sizes("log") == {"log/a/1": 5, "log/b/2": 1}


async def test_what_is_missing_is_not_found(repository: Repository) -> None:
    with pytest.raises(FileNotFoundError):
        await repository.get("log/a/1")


async def test_deleted_objects_are_gone_and_missing_ones_skipped(repository: Repository) -> None:
    for path in ("log/a/1", "log/a/2", "log/a/3"):
        await repository.put(path, b"1")

    await repository.delete([])
    await repository.delete(["log/a/0", "log/a/1", "log/a/3"])

    assert await repository.sizes("log") == {"log/a/2": 1}


async def test_what_a_killed_write_leaves_in_a_folder_is_listed(tmp_path: Path) -> None:
    """So the next backup can delete it."""
    repository = FolderRepository(tmp_path)
    await repository.put("log/a/1", b"1")
    (tmp_path / "log/a/2.0f0f0f0f.unfinished").write_bytes(b"12")

    assert await repository.sizes("log") == {"log/a/1": 1, "log/a/2.0f0f0f0f.unfinished": 2}


async def test_a_repeated_request_whose_answer_was_lost_is_its_own() -> None:
    """A client repeats a request; the store then refuses what it has created by the first one."""
    repository = ObjectRepository.of_url("memory:///", "broker-a")
    await repository.create("backups/1", b"first")

    await repository.create("backups/1", b"first")


def test_a_url_names_an_object_store(tmp_path: Path) -> None:
    assert str(open_repository("s3://bucket/prefix", "broker-a")) == "s3://bucket/prefix/broker-a"
    assert str(open_repository("S3://bucket/prefix", "broker-a")) == "S3://bucket/prefix/broker-a"
    assert str(open_repository(str(tmp_path), "broker-a")) == str(tmp_path / "broker-a")


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("ftp://host/backups", "ftp://host/backups"),
        ("", "--repository is empty"),
        ("s3:/bucket", "expected s3://"),
        ("memory:///backups", "it would be lost with this process"),
        ("FILE:///backups", "a folder is named by its path"),
    ],
)
def test_a_place_that_keeps_no_backup_is_refused(place: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        open_repository(place, "broker-a")


def test_brokers_have_different_folders() -> None:
    names = ["broker-a", "broker a", "broker=20=a", "broker/a", "%RETRY%x", "..", "ブ"]

    folders = [folder_of(name) for name in names]

    assert len(set(folders)) == len(names)
    assert folders[0] == "broker-a"
    assert all("/" not in folder and folder not in (".", "..") for folder in folders)


async def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "broker-a").write_text("a file")

    with pytest.raises(OSError, match="broker-a"):
        await FolderRepository(tmp_path / "broker-a").put("log/1", b"1")


async def test_a_folder_that_cannot_be_listed_is_an_os_error_and_not_empty(tmp_path: Path) -> None:
    (tmp_path / "backups").symlink_to("backups")

    with pytest.raises(OSError, match="backups"):
        await FolderRepository(tmp_path).sizes("backups")


async def test_a_full_disk_is_named_by_its_path(tmp_path: Path) -> None:
    with file_size_limit(100), pytest.raises(OSError, match=r"File too large.*broker-a/log/1"):
        await FolderRepository(tmp_path / "broker-a").put("log/1", bytes(200))
    assert list((tmp_path / "broker-a" / "log").iterdir()) == []


async def test_object_stores_raise_one_error(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    repository = ObjectRepository.of_url((tmp_path / "objects").as_uri(), "broker-a")
    (tmp_path / "objects" / "broker-a").write_text("a file")

    with pytest.raises(TransportError, match="broker-a/log/1"):
        await repository.put("log/1", b"1")
