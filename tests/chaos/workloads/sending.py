"""Producers, and readers that follow the queues they send to.

Each message has a body of its own. Without an ``Idempotency-Key`` it is sent once, whatever becomes
of it. With one it is repeated until the answer is certain.
"""

from __future__ import annotations

from typing import Any, Final

from chaos.checkers.facts import DAMAGED
from chaos.client import ANSWER_SECONDS, Answer, Client, Request

TOPIC: Final = "orders"
QUEUE_COUNT: Final = 3
BATCH_COUNT: Final = 3
REPEATS_MAX: Final = 40


async def send_plain(client: Client, broker: str) -> None:
    """Send message after message, each once."""
    while not client.world.is_over.is_set():
        queue_id = client.random.randrange(QUEUE_COUNT)
        await send(client, broker, TOPIC, queue_id, client.world.message(client.name))
        await client.pause(client.random.random() * 0.05)  # the pace of the load


async def send_keyed(client: Client, broker: str) -> None:
    """Send under keys; repeat what is in doubt, and at times what is not."""
    while not client.world.is_over.is_set():
        message = client.world.message(client.name)
        queue_id = client.random.randrange(QUEUE_COUNT)
        for _ in range(REPEATS_MAX):
            answer = await send(client, broker, TOPIC, queue_id, message, key=message)
            is_certain = answer.outcome == "ok"
            if client.world.is_over.is_set() or (is_certain and client.random.random() < 0.9):
                break
        await client.pause(client.random.random() * 0.05)  # the pace of the load


async def send(
    client: Client,
    broker: str,
    topic: str,
    queue_id: int,
    message: str,
    *,
    key: str | None = None,
    delay_seconds: float | None = None,
    answer_seconds: float = ANSWER_SECONDS,
) -> Answer:
    """Send a message to a queue."""
    queue = [broker, topic, queue_id]
    asked: dict[str, Any] = {"queue": queue, "message": message}
    text = message.ljust(client.world.cluster.shape.body_size)
    body: dict[str, Any] = {"body": {"text": text}}
    headers: tuple[tuple[str, str], ...] = ()
    if key is not None:
        asked["key"] = key
        headers = (("idempotency-key", f'"{key}"'),)
    if delay_seconds is not None:
        asked["delay_seconds"] = delay_seconds
        body["delay_seconds"] = delay_seconds
    target = f"/v1/topics/{topic}/messages?queue_id={queue_id}"
    request = Request(broker, "POST", target, body, headers, answer_seconds)

    def read(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        read = {"queue": queue, "offset": told["queue_offset"]}
        for name in ("copies", "recall_handle"):
            if told.get(name) is not None:
                read[name] = told[name]
        return read

    return await client.do("send", asked, request, read)


async def follow(client: Client, broker: str, topic: str, queue_id: int) -> None:
    """Read a queue on and on; go back to an earlier offset now and then."""
    offset = session = 0
    while not client.world.is_over.is_set():
        answer = await pull(client, broker, topic, queue_id, offset, session=session)
        if answer.is_ok:
            offset = answer.told["next"]
        if client.random.random() < 0.01:
            session += 1
            offset = client.random.randint(0, offset)
        await client.pause(client.random.random() * 0.1)  # the pace of the load


async def pull(
    client: Client,
    broker: str,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    session: int = 0,
    replica: int | None = None,
    wait_seconds: float = 0.5,
) -> Answer:
    """Pull from a queue, of the master or of a certain replica."""
    asked = {"queue": [broker, topic, queue_id], "offset": offset, "session": session}
    if replica is not None:
        asked["replica"] = replica
    target = (
        f"/v1/topics/{topic}/queues/{queue_id}/messages"
        f"?offset={offset}&count_max=200&wait_seconds={wait_seconds}"
    )
    request = Request(broker, "GET", target, replica=replica)
    return await client.do("pull", asked, request, read_pull)


def read_pull(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return what the history keeps of an answer to a pull."""
    messages = [[one["queue_offset"], text_of(one)] for one in told["messages"]]
    return {"messages": messages, "next": told["next_offset"]}


def text_of(message: dict[str, Any]) -> str:
    """Return a message's text, which all of the run have, without what fills it up."""
    text: str = message["body"]["text"] if message["body"] else f"{DAMAGED}{message['damage']}"
    return text.rstrip()
