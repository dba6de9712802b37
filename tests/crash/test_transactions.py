"""A broker killed between any two steps of a transaction, within them, and at random moments.

Whatever is killed when: a transaction is what its log says, what was answered holds, a committed
message is in its queue once, a rolled-back one is in none, and what is not over can be brought to
its end. Projections are deleted and segments retained meanwhile; neither changes an answer.

``ERUCA_CRASH_SEED`` repeats the same decisions, though not the same interleaving of processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

import httpx
import pytest

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Record
from support.forked import forked_broker
from support.killed_clients import work_until_killed
from support.log_model import read_log
from support.processes import ServiceProcess
from support.timer_model import WAITING_TOPICS, TimerModel
from support.transaction_model import TransactionModel

ROUNDS = 7
BEGUN_MIN = 16  # transactions in each, however slow the machine is
SEGMENT_SIZE = 64 * 1024
GROUP, TOPIC = "orders", "payments"
BY_PRODUCER: Final = {"producer_group": GROUP}
BY_OPERATOR: Final = {"by": "operator", "reason": "as it should have been"}


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


# --- Between any two steps, and within them -------------------------------------------------------

BEGIN: Final = (
    "",
    {
        "topic": TOPIC,
        "queue_id": 0,
        "producer_group": GROUP,
        "message": {"body": {"text": "pay"}, "message_id": "t"},
    },
)
CHECK: Final = ("/t:check", {"number": 1, "checker": "c"})
EXPIRE: Final = ("/t:expire", {"checks": 1, "checker": "c"})
STORIES: Final[dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "committed": [BEGIN, CHECK, ("/t:commit", BY_PRODUCER | {"by": "check", "check_number": 1})],
    "rolled_back": [BEGIN, CHECK, ("/t:rollback", BY_PRODUCER)],
    "committed by an operator": [BEGIN, CHECK, EXPIRE, ("/t:commit", BY_OPERATOR)],
    "discarded by an operator": [BEGIN, CHECK, EXPIRE, ("/t:rollback", BY_OPERATOR)],
}


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
@pytest.mark.parametrize("story", STORIES)
def test_a_transaction_is_what_it_was_or_a_step_further(
    tmp_path: Path, flush_mode: str, story: str
) -> None:
    """Each step is asked for twice: killed in it, with no answer; then answered, and killed."""
    seen: list[object] = [None]
    for path, body in STORIES[story]:
        with forked_broker(settings(tmp_path, flush_mode)) as process:
            put_topic(process.url)
            assert look(process.url) == seen[-1]
            ask_and_kill(process, f"/v1/transactions{path}", body)
        with forked_broker(settings(tmp_path, flush_mode)) as process:
            unanswered = look(process.url)
            answer = httpx.post(f"{process.url}/v1/transactions{path}", json=body)
            if path == "/t:check" and unanswered != seen[-1]:
                assert answer.json()["code"] == "check-out-of-turn"
            else:
                assert answer.is_success, answer.text
                assert answer.json().get("repeated", False) == (unanswered != seen[-1])
            seen.append(look(process.url))
            assert unanswered in seen[-2:]
            process.stop(signal.SIGKILL)
    with forked_broker(settings(tmp_path, flush_mode)) as process:
        assert look(process.url) == seen[-1]
        process.stop(signal.SIGTERM)
    model = TransactionModel(read_log(tmp_path))
    model.check()
    assert model.visible["t"] == story.startswith("committed")


def put_topic(url: str) -> None:
    counts = {"read_queue_count": 2, "write_queue_count": 2}
    httpx.put(f"{url}/v1/topics/{TOPIC}", json=counts).raise_for_status()


def look(url: str) -> object:
    """Return all there is to see of the transaction ``t``; None if there is none."""
    with httpx.Client(base_url=f"{url}/v1") as client:
        shown = client.get("/transactions/t")
        queue = client.get(f"/topics/{TOPIC}/queues/0/messages?offset=0").json()
        bodies = [message["body"] for message in queue.get("messages", [])]
        assert len(bodies) == (shown.json().get("state") == "committed")
        return shown.json() if shown.is_success else None


def ask_and_kill(process: ServiceProcess, path: str, body: dict[str, Any]) -> None:
    """Ask, and kill as soon as the request is on its way."""
    url = httpx.URL(process.url)
    request = httpx.Request("POST", url.copy_with(path=path), json=body)
    head = f"POST {path} HTTP/1.1\r\n" + "".join(
        f"{n}: {v}\r\n" for n, v in request.headers.items()
    )
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(f"{head}\r\n".encode() + request.read())
        process.stop(signal.SIGKILL)


# --- At random moments under load -----------------------------------------------------------------


@dataclass
class Books:
    """Answers that clients received, and the log as far as it was read."""

    random: Random
    is_retained: bool  # and so what was decided may be forgotten
    records: dict[int, Record] = field(default_factory=dict)
    begun: int = 0
    told: dict[str, str] = field(default_factory=dict)  # id → state

    def learn(self, directory: Path, *, is_killed: bool = False) -> TransactionModel:
        """Read what is new in the log; check that it fits, also the answers of clients."""
        last = max(self.records, default=None)
        start = 0 if last is None else last + self.records[last].size
        self.records |= {
            record.log_offset: record for record in read_log(directory, start, is_killed=is_killed)
        }
        model = TransactionModel(r for r in self.records.values() if b"noise" not in r.body[:5])
        model.check()
        later = (*WAITING_TOPICS, EVENTS_TOPIC, TOPIC)
        TimerModel(r for r in self.records.values() if r.topic in later).check()
        for transaction_id, state in self.told.items():
            assert state_of(model, transaction_id) in POSSIBLE[state], (transaction_id, state)
        return model


POSSIBLE: Final = {  # possible states after the last answer
    "pending": {"pending", "parked", "committed", "rolled_back"},
    "parked": {"parked", "committed", "rolled_back"},
    "committed": {"committed"},
    "rolled_back": {"rolled_back"},
}


def state_of(model: TransactionModel, transaction_id: str) -> str:
    if transaction_id in model.decided:
        return {"commit": "committed", "rollback": "rolled_back"}[
            model.decided[transaction_id]["outcome"]
        ]
    assert transaction_id in model.begun, f"{transaction_id} is lost"
    return "parked" if transaction_id in model.parked else "pending"


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
@pytest.mark.parametrize("is_retained", [False, True], ids=["kept", "retained"])
def test_no_commit_is_lost_or_doubled_whenever_the_broker_is_killed(
    tmp_path: Path, flush_mode: str, is_retained: bool
) -> None:
    """With retention: all but the last segment is to go at each start, amid which kills fall."""
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    books = Books(Random(seed), is_retained)
    options = settings(tmp_path, flush_mode)
    if is_retained:
        hours = ";".join(map(str, range(24)))
        options |= {"ERUCA_BROKER_RETENTION_HOURS": "0", "ERUCA_BROKER_DELETE_HOURS": hours}
    for _ in range(ROUNDS):
        with forked_broker(options) as process:
            put_topic(process.url)
            asyncio.run(work_until(process.url, books, lambda: process.stop(signal.SIGKILL)))
        books.learn(tmp_path, is_killed=True)
        if books.random.random() < 0.5:
            shutil.rmtree(tmp_path / books.random.choice(["consumequeue", "index", "config"]))

    with forked_broker(options) as process:
        asyncio.run(finish(process.url, books))
        process.stop(signal.SIGTERM)
    model = books.learn(tmp_path)
    assert len(books.told) >= ROUNDS * BEGUN_MIN
    assert not model.pending
    assert not model.parked
    carried = sum(b'"transaction_carried"' in record.body for record in books.records.values())
    assert (carried > 0) == is_retained


async def work_until(url: str, books: Books, kill: Callable[[], object]) -> None:
    """Let clients work until the broker is gone: after enough has begun and a random time."""
    enough = len(books.told) + BEGUN_MIN
    await work_until_killed(
        url,
        lambda client: work(client, books),
        client_count=6,
        seconds=books.random.uniform(0.05, 1.0),
        is_enough=lambda: len(books.told) >= enough,
        kill=kill,
    )


async def work(client: httpx.AsyncClient, books: Books) -> None:
    """Begin, decide, check and give up at random; what an answer says is noted."""
    random = books.random
    while True:
        if random.random() < 0.4 or not books.told:
            await begin(client, books)
        elif random.random() < 0.1:
            body = {"body": {"text": "noise".ljust(4_000)}}
            await client.post(f"/topics/{TOPIC}/messages", json=body)
        else:
            recent = list(books.told)[-60:]
            if random.random() < 0.2:
                await decide_together(client, books, random.sample(recent, min(6, len(recent))))
            else:
                await step(client, books, random.choice(recent))


async def begin(client: httpx.AsyncClient, books: Books) -> None:
    """Begin one transaction, or several by a shared request."""
    if books.random.random() < 0.7:
        new = next_new(books)
        answer = await client.post("/transactions", json=new)
        assert answer.status_code == 201, answer.text
        books.told[new["message"]["message_id"]] = "pending"
        return
    several = [next_new(books) for _ in range(4)]
    answer = await client.post("/transactions:begin", json={"transactions": several})
    assert answer.status_code == 200, answer.text
    for new, result in zip(several, answer.json()["results"], strict=True):
        assert result["receipt"] is not None, result
        books.told[new["message"]["message_id"]] = "pending"


def next_new(books: Books) -> dict[str, Any]:
    books.begun += 1
    transaction_id = f"t{books.begun}"
    text = transaction_id.ljust(books.random.choice((0, 100, 3_000)), ".")
    message: dict[str, Any] = {"body": {"text": text}, "message_id": transaction_id}
    if books.random.random() < 0.2:
        message["delay_seconds"] = books.random.choice((0.3, 1_000))
    return {"topic": TOPIC, "producer_group": GROUP, "message": message}


async def decide_together(
    client: httpx.AsyncClient, books: Books, transaction_ids: list[str]
) -> None:
    """Decide several transactions by a shared request, each its own way."""
    wanted = [
        {"transaction_id": name, "outcome": books.random.choice(["commit", "rollback"])}
        | books.random.choice([BY_PRODUCER, BY_OPERATOR])
        for name in transaction_ids
    ]
    answer = await client.post("/transactions:decide", json={"transactions": wanted})
    assert answer.status_code == 200, answer.text
    for name, result in zip(transaction_ids, answer.json()["results"], strict=True):
        if result["problem"] is None:
            note(books, name, result["receipt"]["state"])
        else:
            note_refusal(books, name, result["problem"])


async def step(client: httpx.AsyncClient, books: Books, transaction_id: str) -> None:
    """Do something about a transaction, while others may do the same or the opposite."""
    random = books.random
    verb = random.choice(["commit", "commit", "rollback", "check", "expire"])
    body: dict[str, Any] = random.choice([BY_PRODUCER, BY_OPERATOR])
    if verb in ("check", "expire"):
        shown = await client.get(f"/transactions/{transaction_id}")
        checks = shown.json().get("checks", 0)
        body = {"number": checks + 1} if verb == "check" else {"checks": checks}
        body["checker"] = "c"
    answer = await client.post(f"/transactions/{transaction_id}:{verb}", json=body)
    if answer.is_success:
        told = answer.json()
        if verb != "check":
            note(books, transaction_id, told["state"])
        return
    note_refusal(books, transaction_id, answer.json())


def note_refusal(books: Books, transaction_id: str, problem: dict[str, Any]) -> None:
    if problem["status"] == 404 and books.is_retained:
        return
    assert problem["status"] == 409, problem
    if problem["code"] == "already-decided":
        decided = problem["decision"]
        states = {"commit": "committed", "rollback": "rolled_back"}
        is_parked = decided["by"] == "limit"
        note(books, transaction_id, "parked" if is_parked else states[decided["outcome"]])
    else:
        assert problem["code"] == "check-out-of-turn", problem


def note(books: Books, transaction_id: str, state: str) -> None:
    """Note an answer; a final state stays."""
    before = books.told[transaction_id]
    if before in ("committed", "rolled_back") and state not in ("pending", "parked"):
        assert before == state, f"{transaction_id} was {before} and is {state}"
    elif before not in ("committed", "rolled_back"):
        books.told[transaction_id] = state


async def finish(url: str, books: Books) -> None:
    """Ask again for all that was decided, and decide the rest."""
    async with httpx.AsyncClient(base_url=f"{url}/v1", trust_env=False) as client:
        states = {"committed": "commit", "rolled_back": "rollback"}
        for transaction_id, state in books.told.items():
            if state not in states:
                continue
            verb = states[state]
            answer = await client.post(f"/transactions/{transaction_id}:{verb}", json=BY_OPERATOR)
            if answer.status_code == 404 and books.is_retained:
                continue
            assert answer.json()["repeated"], answer.text
            assert answer.json()["state"] == state
        while page := (await client.get("/transactions")).json()["transactions"]:
            for one in page:
                transaction_id = one["transaction_id"]
                answer = await client.post(
                    f"/transactions/{transaction_id}:commit", json=BY_OPERATOR
                )
                assert answer.json()["state"] == "committed", answer.text
                books.told[transaction_id] = "committed"
