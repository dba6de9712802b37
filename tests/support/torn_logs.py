"""Logs as a power cut or a kill leaves them: what was written behind some place is not there."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import shutil
import signal
from collections.abc import Collection
from pathlib import Path

from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import StoreSettings
from support.clocks import ManualClock
from support.stores import batch


def cut_copy(source: Path, copy: Path, offset: int) -> None:
    """Copy the store in *source*, whose log is one segment, without what lies from *offset* on."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    [segment] = (copy / "commitlog").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data[:offset].ljust(len(data), b"\0"))


def cut_log(store: Path, offset: int) -> None:
    """Clear what lies from *offset* on in the log of the store in *store*."""
    for path in sorted((store / "commitlog").iterdir()):
        base, size = int(path.name), path.stat().st_size
        keep = min(max(offset - base, 0), size)
        data = path.read_bytes()[:keep]
        path.write_bytes(data + bytes(size - keep))


def delete_projections(store: Path, names: Collection[str]) -> None:
    """Delete files and folders of the store in *store*; some of them may be missing."""
    for name in names:
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def kill_amid_a_write(
    directory: Path, settings: StoreSettings, topic: str, bodies: list[bytes], written_size: int
) -> None:
    """Append a batch in a process which the kernel kills at so many bytes behind the log's end.

    Where the batch begins the next segment, that is as far from that segment's start as the end of
    the one before it, and so many bytes more.
    """
    context = multiprocessing.get_context("spawn")
    arguments = (directory, settings, topic, bodies, written_size)
    process = context.Process(target=_append_until_killed, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGXFSZ


def _append_until_killed(
    directory: Path, settings: StoreSettings, topic: str, bodies: list[bytes], written_size: int
) -> None:
    async def append() -> None:
        store = await MessageStore.open(directory, settings, ManualClock())
        await (
            store.upkeep.prepare_next_segment()
        )  # no file of that length can be made below the limit
        limit = store.log_max_offset % store.segment_bytes + written_size
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
        await store.append(batch(topic, 0, bodies))

    asyncio.run(append())
