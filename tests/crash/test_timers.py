"""A broker that is killed at random moments while messages come due, again and again on one store.

Clients send delayed messages, recall some, and the broker fires what is due all the while. After
each kill, and at the end when everything has come, each message was delivered once, or recalled, or
it waits; none that was promised is missing, none came before its time, and none ever came after its
client had received that it is recalled.

``ERUCA_CRASH_SEED`` repeats the same decisions, though not the same interleaving of processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random, SystemRandom

import httpx
import pytest

from support.forked import forked_broker
from support.killed_clients import work_until_killed
from support.log_model import read_log
from support.timer_model import TimerModel
from support.waiting import wait_until

ROUNDS = 7
PROMISED_MIN = 10  # messages in each, however slow the machine is
SEGMENT_SIZE = 256 * 1024
DELAYS_MAX = 1.5  # seconds


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


@dataclass
class Books:
    """The clients' requests and the answers."""

    random: Random
    sent: int = 0
    promised: dict[bytes, int] = field(default_factory=dict)  # body → when it is due, in ms
    recalled: set[bytes] = field(default_factory=set)  # as told by a 204

    def check(self, directory: Path) -> TimerModel:
        model = TimerModel(read_log(directory))
        model.check()
        assert self.promised.keys() <= set(model.waiting.values())
        assert self.recalled <= model.cancelled
        for body, due_ms in self.promised.items():
            if body in model.delivered_at:
                assert model.delivered_at[body] >= due_ms, "it came before its time"
        return model


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
def test_each_delayed_message_comes_once_whenever_the_broker_is_killed(
    tmp_path: Path, flush_mode: str
) -> None:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    books = Books(Random(seed))
    for _ in range(ROUNDS):
        with forked_broker(settings(tmp_path, flush_mode)) as process:
            asyncio.run(send_until(process.url, books, lambda: process.stop(signal.SIGKILL)))
        books.check(tmp_path)
        if books.random.random() < 0.4:
            shutil.rmtree(tmp_path / books.random.choice(["consumequeue", "index", "config"]))

    with forked_broker(settings(tmp_path, flush_mode)) as process:
        with httpx.Client(base_url=f"{process.url}/v1", trust_env=False) as client:
            wait_until(lambda: not client.get("/scheduled").json()["scheduled"])
        process.stop(signal.SIGTERM)
    model = books.check(tmp_path)
    assert not model.pending
    assert len(books.promised) >= ROUNDS * PROMISED_MIN
    assert set(model.delivered) >= books.promised.keys() - model.cancelled


async def send_until(url: str, books: Books, kill: Callable[[], object]) -> None:
    """Send and recall until the broker is gone: after enough was promised and a random time."""
    enough = len(books.promised) + PROMISED_MIN
    await work_until_killed(
        url,
        lambda client: send(client, books),
        client_count=4,
        seconds=books.random.uniform(0.2, 1.2),
        is_enough=lambda: len(books.promised) >= enough,
        kill=kill,
    )


async def send(client: httpx.AsyncClient, books: Books) -> None:
    random = books.random
    while True:
        bodies, messages = [], []
        for _ in range(random.randint(1, 6)):
            books.sent += 1
            body = f"{books.sent}|".ljust(random.choice((0, 100, 3_000)), ".")
            bodies.append(body.encode())
            messages.append({"body": {"text": body}} | _delay(random))
        answer = await client.post("/topics/orders/messages", json={"messages": messages})
        assert answer.status_code == 201, answer.text
        receipts = answer.json()["messages"]
        for sent, receipt in zip(bodies, receipts, strict=True):
            due = datetime.fromisoformat(receipt["deliver_at"])
            books.promised[sent] = round(due.timestamp() * 1000)
        if random.random() < 0.5:
            chosen = random.randrange(len(receipts))
            recalled = await client.delete(f"/scheduled/{receipts[chosen]['recall_handle']}")
            assert recalled.status_code in (204, 409), recalled.text
            if recalled.status_code == 204:
                books.recalled.add(bodies[chosen])


def _delay(random: Random) -> dict[str, object]:
    if random.random() < 0.2:
        return {"delay_level": 1}
    return {"delay_seconds": round(random.uniform(0.01, DELAYS_MAX), 3)}
