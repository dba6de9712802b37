"""Objects of many parts: whole, or not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.contract.errors import ErucaError
from eruca.objects.folders import FolderRepository
from eruca.objects.object_stores import ObjectRepository
from eruca.objects.repositories import Repository

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["folder", "memory", "local"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    if request.param == "folder":
        return FolderRepository(tmp_path / "tier")
    url = "memory:///" if request.param == "memory" else tmp_path.as_uri()
    return ObjectRepository.of_url(url, "tier")


async def parts(count: int, *, fails: bool = False) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * 1_000_000
    if fails:
        raise OSError("the disk is failing")


async def test_an_object_has_all_of_its_parts(repository: Repository) -> None:
    await repository.put_parts("log/a", parts(20))

    data = await repository.get("log/a")
    assert data == b"".join([part async for part in parts(20)])


async def test_nothing_is_there_if_a_part_fails(repository: Repository) -> None:
    with pytest.raises((ErucaError, OSError)):
        await repository.put_parts("log/a", parts(20, fails=True))

    assert await repository.sizes("log") == {}


async def test_a_list_may_begin_behind_a_path(repository: Repository) -> None:
    for name in ("1", "2", "3"):
        await repository.put(f"log/{name}", b"x")

    assert await repository.sizes("log", after="log/1") == {"log/2": 1, "log/3": 1}
