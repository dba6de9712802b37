"""A broker that is killed while messages are sent under keys: what is repeated is there once.

A client repeats whatever it got no answer to, under the same key, until it gets one: what was
appended before the kill and never answered must be found again, whatever became of the index.

``ERUCA_CRASH_SEED`` repeats the same decisions, though not the same interleaving of processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import httpx
import pytest

from eruca.contract.properties import UNIQ_KEY
from support.forked import forked_broker
from support.log_model import read_log
from support.waiting import until

ROUNDS = 6
CLIENTS = 8
ANSWERED_MAX = 300  # in each round, before the kill


def settings(directory: Path, flush_mode: str) -> dict[str, str]:
    return {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_STORE_DIR": str(directory),
        "ERUCA_BROKER_NAMESRV_URLS": "",
        "ERUCA_BROKER_FLUSH_MODE": flush_mode,
        "ERUCA_BROKER_SEGMENT_BYTES": str(1024 * 1024),
        "ERUCA_BROKER_QUEUE_FILE_ENTRIES": "500",
        "ERUCA_BROKER_INDEX_SLOTS": "256",
        "ERUCA_BROKER_INDEX_ENTRIES": "1024",
    }


class Sends:
    """The sends in their order, and their answers."""

    def __init__(self) -> None:
        self.answers: dict[str, list[dict[str, Any]]] = {}  # by key
        self.open: list[str] = []  # keys without an answer
        self._count = 0

    def next_key(self) -> str:
        """Return a key to repeat, or a new one."""
        if self.open:
            return self.open.pop()
        self._count += 1
        return f"send:{self._count}"

    def take(self, key: str, answer: httpx.Response) -> None:
        """Note an answer."""
        assert answer.status_code == 201, answer.text
        receipts = answer.json()
        self.answers[key] = receipts.get("messages") or [receipts]


def content_of(key: str) -> dict[str, Any]:
    """Return what is sent under a key: one message, one that is delivered later, or a batch."""
    number = int(key.rpartition(":")[2])
    message: dict[str, Any] = {"body": {"text": f"{key} {'x' * (number % 700)}"}, "tag": "t"}
    if number % 3 == 0:
        return {"messages": [message] * (1 + number % 40)}
    return message | ({"delay_seconds": 3_600} if number % 3 == 1 else {})


async def send_until_it_dies(client: httpx.AsyncClient, sends: Sends) -> None:
    while True:
        key = sends.next_key()
        try:
            answer = await client.post(
                "/v1/topics/orders/messages",
                json=content_of(key),
                headers={"idempotency-key": f'"{key}"'},
            )
        except httpx.TransportError:
            sends.open.append(key)
            return
        sends.take(key, answer)


async def load_and_kill(
    url: str, kill: Callable[[signal.Signals], int], sends: Sends, answered: int
) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        workers = [asyncio.create_task(send_until_it_dies(client, sends)) for _ in range(CLIENTS)]
        target = len(sends.answers) + answered
        await until(lambda: len(sends.answers) >= target)
        kill(signal.SIGKILL)
        await asyncio.gather(*workers)


async def repeat_all(url: str, sends: Sends) -> None:
    """Get an answer to what has none, and the same answer to what has one."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for key in (*sends.open, *list(sends.answers)[::25]):
            answer = await client.post(
                "/v1/topics/orders/messages",
                json=content_of(key),
                headers={"idempotency-key": key},
            )
            before = sends.answers.get(key)
            sends.take(key, answer)
            assert before is None or before == sends.answers[key]


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
def test_whatever_is_repeated_after_a_kill_is_stored_once(tmp_path: Path, flush_mode: str) -> None:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    random = Random(seed)
    sends = Sends()
    for _ in range(ROUNDS):
        with forked_broker(settings(tmp_path, flush_mode)) as process:
            answered = random.randint(1, ANSWERED_MAX)
            asyncio.run(load_and_kill(process.url, process.stop, sends, answered))
        if random.random() < 0.5:
            shutil.rmtree(tmp_path / "index")
    with forked_broker(settings(tmp_path, flush_mode)) as process:
        asyncio.run(repeat_all(process.url, sends))

    stored = Counter(record.property_map().get(UNIQ_KEY) for record in read_log(tmp_path))
    promised = [receipt["message_id"] for answer in sends.answers.values() for receipt in answer]
    assert len(promised) == len(set(promised))
    assert {unique_id: stored[unique_id] for unique_id in promised} == dict.fromkeys(promised, 1)
    assert sum(count for unique_id, count in stored.items() if unique_id) == len(promised)
