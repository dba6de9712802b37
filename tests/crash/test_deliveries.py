"""A broker killed between any two requests of those who consume by deliveries, and within them.

Whatever is killed when: an acknowledged message is never redelivered. No consumer receives a
message while another's handle of it is valid. A handle that was seen keeps its validity. Attempts
only grow, and in the end every message has been acknowledged once or is a dead letter.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import httpx
import pytest

from support.forked import forked_broker
from support.patience import PATIENCE_SECONDS
from support.processes import ServiceProcess

MESSAGES = 60
ROUNDS_MAX = 5
ATTEMPTS_MAX = 6
INVISIBLE_SECONDS = 2.0
LONG_SECONDS = 600.0
CLOCK_SLACK = 0.05  # seconds between what a test and a broker take for now
GROUP = "/v1/groups/g/deliveries"


@dataclass
class Held:
    """A delivery that a client received."""

    text: str
    handle: str
    attempt: int
    until: float  # at the earliest, by this process's clock


@dataclass
class Book:
    """Facts that the clients know for sure, and those that they do not know."""

    random: Random
    held: dict[str, Held] = field(default_factory=dict)  # by text
    attempts: dict[str, int] = field(default_factory=dict)
    acked: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)  # told to be done or given up; no answer came

    def note(self, one: dict[str, Any], asked_at: float, seconds: float) -> None:
        text = one["message"]["body"]["text"]
        assert text not in self.acked, f"{text} was acknowledged and is redelivered"
        before = self.held.get(text)
        if before is not None and text not in self.unsure:
            assert time.time() > before.until - CLOCK_SLACK, f"{text} is held by another"
        assert one["attempt"] > self.attempts.get(text, 0)
        self.attempts[text] = one["attempt"]
        self.unsure.discard(text)
        self.held[text] = Held(text, one["handle"], one["attempt"], asked_at + seconds)


def settings(directory: Path, flush_mode: str) -> dict[str, str]:
    return {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_STORE_DIR": str(directory),
        "ERUCA_BROKER_NAMESRV_URLS": "",
        "ERUCA_BROKER_FLUSH_MODE": flush_mode,
        "ERUCA_BROKER_SEGMENT_BYTES": str(64 * 1024),  # so that snapshots come often
    }


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
def test_deliveries_survive_every_kill(tmp_path: Path, flush_mode: str) -> None:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    book = Book(Random(seed))
    for number in range(ROUNDS_MAX):
        with forked_broker(settings(tmp_path, flush_mode)) as process:
            if number == 0:
                prepare(process.url)
            check_handles(process.url, book)
            asyncio.run(consume_and_kill(process, book))
    with forked_broker(settings(tmp_path, flush_mode)) as process:
        check_handles(process.url, book)
        asyncio.run(finish(process.url, book))


def prepare(url: str) -> None:
    with httpx.Client(base_url=f"{url}/v1") as client:
        queues = {"read_queue_count": 2, "write_queue_count": 2}
        client.put("/topics/t", json=queues).raise_for_status()
        policy = {"start": "earliest", "retries_max": ATTEMPTS_MAX - 1}
        client.put("/groups/g", json=policy).raise_for_status()
        for number in range(MESSAGES):
            body = {"body": {"text": str(number)}}
            client.post(f"/topics/t/messages?queue_id={number % 2}", json=body).raise_for_status()


def check_handles(url: str, book: Book) -> None:
    """Handles that a client received before the kill are valid after it."""
    with httpx.Client(base_url=url) as client:
        for held in book.held.values():
            if held.text in book.unsure or held.until - time.time() < 1:
                continue
            body = {"handles": [held.handle], "invisible_seconds": LONG_SECONDS}
            answer = client.post(f"{GROUP}:extend", json=body)
            if answer.status_code == httpx.codes.OK:
                held.until = time.time() + LONG_SECONDS - 1
            else:
                assert_is_over(held, answer)


async def consume_and_kill(process: ServiceProcess, book: Book) -> None:
    """Let clients work until the broker is killed: after some answers, while clients may wait."""
    answers_left = book.random.randint(1, 40)
    killed = asyncio.Event()

    def answered() -> None:
        nonlocal answers_left
        answers_left -= 1
        if answers_left == 0:
            process.stop(signal.SIGKILL)
            killed.set()

    async with httpx.AsyncClient(base_url=process.url) as client:
        workers = [asyncio.create_task(work(client, book, answered)) for _ in range(4)]
        await asyncio.wait([asyncio.create_task(killed.wait())], timeout=PATIENCE_SECONDS)
        if not killed.is_set():
            process.stop(signal.SIGKILL)
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, httpx.HTTPError):
                raise outcome


async def work(client: httpx.AsyncClient, book: Book, answered: Any) -> None:  # noqa: ANN401
    mine: list[Held] = []
    while True:
        if mine and book.random.random() < 0.6:
            held = mine.pop(book.random.randrange(len(mine)))
            await end(client, book, held)
        else:
            seconds = book.random.choice([INVISIBLE_SECONDS, LONG_SECONDS])
            body = {
                "topic": "t",
                "count_max": book.random.randint(1, 4),
                "invisible_seconds": seconds,
                "wait_seconds": book.random.choice([0, 0.2]),
            }
            asked_at = time.time()
            answer = await client.post(GROUP, json=body)
            assert answer.status_code == 200, answer.text
            for one in answer.json()["deliveries"]:
                book.note(one, asked_at, seconds)
                mine.append(book.held[one["message"]["body"]["text"]])
        answered()


async def end(client: httpx.AsyncClient, book: Book, held: Held) -> None:
    """Finish, give up or keep a message; until the answer is there, what it did is unknown."""
    if book.held.get(held.text) is not held:
        return  # too late, and somebody else's by now
    what = book.random.choice(["ack", "ack", "nack", "extend"])
    fields = {"ack": {}, "nack": {"delay_seconds": 0}, "extend": {"invisible_seconds": 5}}[what]
    book.unsure.add(held.text)
    sent_at = time.time()
    answer = await client.post(f"{GROUP}:{what}", json={"handles": [held.handle], **fields})
    if answer.is_success:
        if what == "extend":
            held.until = sent_at + 5
            if book.held.get(held.text) is held:
                book.unsure.discard(held.text)
        elif what == "ack":
            book.acked.add(held.text)
            book.held.pop(held.text, None)
    else:
        assert_is_over(held, answer)


def assert_is_over(held: Held, refused: httpx.Response) -> None:
    """A handle is refused only when its time is over."""
    assert refused.status_code in (409, 410), refused.text
    assert time.time() > held.until - CLOCK_SLACK, refused.text


async def finish(url: str, book: Book) -> None:
    """Acknowledge everything that is left: what is held, then what still comes."""
    async with httpx.AsyncClient(base_url=url) as client:
        for held in list(book.held.values()):
            answer = await client.post(f"{GROUP}:ack", json={"handles": [held.handle]})
            if answer.is_success:
                book.acked.add(held.text)
                del book.held[held.text]
        while True:
            body = {"topic": "t", "count_max": 32, "wait_seconds": INVISIBLE_SECONDS + 1}
            asked_at = time.time()
            got = (await client.post(GROUP, json=body)).json()["deliveries"]
            for one in got:
                book.note(one, asked_at, 60)
            if not got:
                break
            handles = [one["handle"] for one in got]
            answer = await client.post(f"{GROUP}:ack", json={"handles": handles})
            assert answer.is_success, answer.text
            book.acked |= {one["message"]["body"]["text"] for one in got}
        dead = (await client.get("/v1/groups/g/dead-letters?limit=1000")).json()["dead_letters"]
        offsets = (await client.get("/v1/groups/g/offsets?topic=t")).json()["offsets"]
    letters = {int(one["origin_offset"]) * 2 + int(one["origin_queue_id"]) for one in dead}
    assert not {str(number) for number in letters} & book.acked
    done = {int(text) for text in book.acked} | letters
    left = set(range(MESSAGES)) - done - {int(text) for text in book.unsure}
    for number in left:  # handed out for long, in an answer nobody got: not lost, only out
        assert offsets[number % 2]["committed_offset"] <= number // 2
