"""An object store or folder that does not answer: the status shows it, and only the tier fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eruca.objects.folders import FolderRepository
from eruca_broker.store.tiering import uploads
from eruca_broker.store.tiering.tiering import Tiering
from support.clocks import ManualClock
from support.stores import without_log_lines
from support.tiers import SETTINGS, FaultyRepository, brought_up, filled_store

pytestmark = pytest.mark.anyio


class HangingRepository(FaultyRepository):
    """A repository one of whose requests never ends.

    Attributes:
        hangs: The name of the method; None: none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hangs: str | None = None

    async def _answer(self, request: str) -> None:
        if self.hangs == request:
            await asyncio.Event().wait()

    async def put(self, path: str, data: bytes) -> None:
        await self._answer("put")
        await super().put(path, data)

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        await super().put_parts(path, parts)
        await self._answer("put_parts")

    async def create(self, path: str, data: bytes) -> None:
        await self._answer("create")
        await super().create(path, data)

    async def get(self, path: str) -> bytes:
        await self._answer("get")
        return await super().get(path)

    async def sizes(self, folder: str, *, after: str | None = None) -> dict[str, int]:
        await self._answer("sizes")
        return await super().sizes(folder, after=after)


@pytest.mark.parametrize("request_", ["sizes", "get", "put_parts", "create", "put"])
async def test_a_request_that_never_ends_is_a_failure_of_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    clock, repository = ManualClock(), HangingRepository()
    with without_log_lines():
        store = await filled_store(tmp_path / "store", clock, 4)
        tiering = Tiering(store, repository, SETTINGS, clock, is_master=True)
        await tiering.open()
        await tiering.step()
        await tiering.close()
        tiering = Tiering(store, repository, SETTINGS, clock, is_master=True)
        await tiering.open()
        repository.hangs = request_
        monkeypatch.setattr(uploads, "ANSWER_SECONDS", 0.05)
        async with asyncio.timeout(30):
            while tiering.failure is None:
                await tiering.step()
        assert "has not answered" in tiering.failure

        repository.hangs = None
        monkeypatch.setattr(uploads, "ANSWER_SECONDS", 60.0)
        await tiering.step()  # what an upload left is found
        await brought_up(tiering)
        assert tiering.tiered_to == store.retention.segment_ends()[-2]
        await tiering.close()
        await store.close()


async def test_a_folder_that_hangs_holds_up_no_other_thread(tmp_path: Path) -> None:
    """A pipe without a writer takes the place of a file on a file system that is away."""
    pipe = tmp_path / "hanging"
    os.mkfifo(pipe)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    repository = FolderRepository(tmp_path)
    read = asyncio.create_task(repository.get("hanging"))
    # The pipe can be opened for writing once it has a reader: the thread is in its read then.
    writer = await loop.run_in_executor(ThreadPoolExecutor(1), os.open, pipe, os.O_WRONLY)
    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        os.write(writer, b"late")
        os.close(writer)
    assert await read == b"late"
