"""Starting: what has been begun is ended, however far it has come."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import psutil
import pytest

from eruca_broker import wiring
from eruca_broker.loops.timers import TimerLoop
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.app import ServiceApp
from support.brokers import client_of, open_broker
from support.limits import open_files_limit
from support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [
        (wiring, "compose", Mock),
        (ServiceApp, "telling", Mock),
        (TransactionCarrier, "carry_imported", AsyncMock),
        (TimerLoop, "start", Mock),
    ],
    ids=["wiring", "measuring", "carrying", "loops"],
)
async def test_a_start_that_fails_leaves_the_store_in_order(
    owner: object,
    name: str,
    fails: type[Mock],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[Path] = []
    close = MessageStore.close

    async def noted_close(store: MessageStore) -> None:
        await close(store)
        closed.append(store.directory)

    monkeypatch.setattr(MessageStore, "close", noted_close)
    monkeypatch.setattr(owner, name, fails(side_effect=MemoryError("no more")))

    with pytest.raises(MemoryError):
        async with open_broker(tmp_path):
            pass

    assert closed == [tmp_path]
    assert not (tmp_path / "abort").exists()
    monkeypatch.undo()
    async with open_broker(tmp_path):
        assert (tmp_path / "abort").exists()


QUEUE_FILES_MAX = 1_024  # the default of the store's open_files_max


async def test_queues_leave_half_of_a_small_limit_of_open_files_to_connections(
    tmp_path: Path,
) -> None:
    queues = {"read_queue_count": 16, "write_queue_count": 16}
    others = psutil.Process().num_fds()  # that this process has open already
    with open_files_limit(2 * (others + 50)):  # half of it is enough for everything else
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with open_broker(tmp_path) as broker, client_of(broker) as client:
            for number in range(limit // 16 + 1):
                await client.put(f"/topics/orders-{number}", json=queues)
                for queue_id in range(16):
                    answer = await client.post(
                        f"/topics/orders-{number}/messages",
                        params={"queue_id": queue_id},
                        json={"body": {"text": "paid"}},
                    )
                    assert answer.status_code == 201, answer.text
            # A process that has many files open already has a limit above the queues' own.
            most = min(limit // 2, QUEUE_FILES_MAX)
            # A flush, in its thread, has a descriptor of its own for as long as it takes.
            await until(lambda: open_below(tmp_path / "consumequeue") == most)


def open_below(directory: Path) -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link).startswith(f"{directory}/") for link in links)
