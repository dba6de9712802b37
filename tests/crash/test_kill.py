"""A broker under load, killed at random moments, again and again on one store.

After each kill everything that was acknowledged is there, once, where the receipt says; queues have
no gaps; and pulls, filters, keys, topics and committed offsets agree with a walk of the log.

What is random comes from one seed, which a failure prints: ``ERUCA_CRASH_SEED`` repeats the same
decisions, though not the same interleaving of processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom

import psutil
import pytest

from support.answers import check_answers
from support.crash_load import TRANSIENT_TOPICS, Ledger, Load
from support.forked import forked_broker, started_by_fork
from support.log_model import LogModel, read_log
from support.processes import ServiceProcess

ROUNDS_MAX = 12
SECONDS_MAX = 20.0
SEGMENT_SIZE = 1024 * 1024


def settings(directory: Path, flush_mode: str) -> dict[str, str]:
    return {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_STORE_DIR": str(directory),
        "ERUCA_BROKER_NAMESRV_URLS": "",
        "ERUCA_BROKER_FLUSH_MODE": flush_mode,
        "ERUCA_BROKER_SEGMENT_BYTES": str(SEGMENT_SIZE),
        "ERUCA_BROKER_QUEUE_FILE_ENTRIES": "500",
        "ERUCA_BROKER_INDEX_SLOTS": "256",
        "ERUCA_BROKER_INDEX_ENTRIES": "1024",
    }


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    return Random(seed)


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
def test_whatever_was_acknowledged_survives_every_kill(
    tmp_path: Path, random: Random, flush_mode: str
) -> None:
    ledger = Ledger(random)
    model = LogModel()
    deadline = time.monotonic() + SECONDS_MAX
    for number in range(ROUNDS_MAX + 1):
        with forked_broker(settings(tmp_path, flush_mode)) as process:
            verify(process, tmp_path, ledger, model)
            if number == ROUNDS_MAX or time.monotonic() > deadline:
                break
            asyncio.run(load_and_kill(process, ledger, is_first=number == 0))
        random.choice(MISCHIEF)(tmp_path, random)
    assert LogModel(read_log(tmp_path)).queues == model.queues


async def load_and_kill(process: ServiceProcess, ledger: Ledger, *, is_first: bool) -> None:
    async with Load(process.url, ledger) as load:
        if is_first:
            await load.prepare()
        clients = asyncio.create_task(load.run())
        reached = asyncio.create_task(ledger.promises(ledger.random.randint(1, 3_000)))
        await asyncio.wait([clients, reached], return_when=asyncio.FIRST_COMPLETED)
        process.stop(signal.SIGKILL)
        reached.cancel()
        await clients


def verify(process: ServiceProcess, directory: Path, ledger: Ledger, model: LogModel) -> None:
    """Compare books, log and answers; *model* knows the log as it was before."""
    known = {key: end for key, end in model.ends.items() if key[0] not in TRANSIENT_TOPICS}
    for record in read_log(directory, model.end_offset):
        model.add(record)
    ledger.settle(model)
    check_answers(process.url, model, first=known)


# --- What may happen to the files of a broker that does not run -----------------------------------


def nothing(directory: Path, random: Random) -> None:
    """Leave everything as the kill left it."""


def kill_it_while_it_recovers(directory: Path, random: Random) -> None:
    """Start once more, and kill as soon as it has the log open."""
    with started_by_fork("eruca_broker", settings(directory, "async")) as process:
        watched = psutil.Process(process.pid)
        while not any("commitlog" in file.path for file in watched.open_files()):
            pass  # another process has no event to wait for
        process.stop(signal.SIGKILL)


def lose_a_projection(directory: Path, random: Random) -> None:
    shutil.rmtree(directory / random.choice(("consumequeue", "index", "config")))


def lose_every_projection(directory: Path, random: Random) -> None:
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(directory / name)
    (directory / "checkpoint").unlink()


def lose_the_checkpoint(directory: Path, random: Random) -> None:
    (directory / "checkpoint").unlink()


def damage_a_projection(directory: Path, random: Random) -> None:
    """Cut a file short, as a crash of the machine may."""
    files = [
        p for d in ("consumequeue", "index") for p in (directory / d).rglob("*") if p.is_file()
    ]
    chosen = random.choice(sorted(files))
    os.truncate(chosen, random.randrange(chosen.stat().st_size))


def write_behind_the_end(directory: Path, random: Random) -> None:
    """Leave what a torn write leaves: bytes that are no record."""
    records = list(read_log(directory))
    end = records[-1].log_offset + records[-1].size
    last = max((directory / "commitlog").iterdir())
    with last.open("r+b") as file:
        file.seek(max(end - int(last.name), 0))
        file.write(random.randbytes(random.randint(1, 600)))


def leave_a_prepared_segment(directory: Path, random: Random) -> None:
    """Leave the segment that was to come next, with or without its length."""
    last = max((directory / "commitlog").iterdir())
    if last.stat().st_size < SEGMENT_SIZE:  # the kill has left it; no crash leaves two
        return
    following = last.with_name(f"{int(last.name) + SEGMENT_SIZE:020d}")
    following.write_bytes(bytes(random.choice((0, 1, SEGMENT_SIZE))))


MISCHIEF: list[Callable[[Path, Random], None]] = [
    nothing,
    nothing,
    kill_it_while_it_recovers,
    lose_a_projection,
    lose_every_projection,
    lose_the_checkpoint,
    damage_a_projection,
    write_behind_the_end,
    leave_a_prepared_segment,
]
