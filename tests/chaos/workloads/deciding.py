"""Producers of messages that come later: delayed ones, some recalled, and transactions."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import quote

from chaos.client import Answer, Client, Request
from chaos.workloads.sending import send

DELAYED_TOPIC: Final = "reminders"
PAID_TOPIC: Final = "payments"
QUEUE_COUNT: Final = 2
DELAY_SECONDS_MAX: Final = 12.0
PRODUCER_GROUP: Final = "shop"
REPEATS_MAX: Final = 60


async def send_delayed(client: Client, broker: str) -> None:
    """Send messages for later, and recall some."""
    while not client.world.is_over.is_set():
        message = client.world.message(client.name)
        delay = round(1.0 + client.random.random() * (DELAY_SECONDS_MAX - 1.0), 3)
        queue_id = client.random.randrange(QUEUE_COUNT)
        answer = await send(client, broker, DELAYED_TOPIC, queue_id, message, delay_seconds=delay)
        handle = answer.told.get("recall_handle")
        if handle is not None and client.random.random() < 0.2:
            await client.pause(client.random.random() * delay)  # before it is due, mostly
            request = Request(broker, "DELETE", f"/v1/scheduled/{quote(handle, safe='')}")
            await client.do("recall", {"message": message}, request, lambda _: {})
        await client.pause(0.1 + client.random.random() * 0.2)  # the pace of the load


async def transact(client: Client, broker: str, left_open: dict[str, str]) -> None:
    """Begin transactions and decide them; repeat a decision that is in doubt.

    Args:
        client: The producer.
        broker: The group.
        left_open: Gets those that were begun: ids by message, for the final questions.
    """
    while not client.world.is_over.is_set():
        message = client.world.message(client.name)
        begun = await _begin(client, broker, message)
        if begun.is_ok:
            transaction = begun.told["transaction"]
            left_open[message] = transaction
            verb = client.random.choice(("commit", "commit", "rollback"))
            for _ in range(REPEATS_MAX):
                answer = await decide(client, broker, message, transaction, verb)
                if client.world.is_over.is_set() or answer.is_ok:
                    break
            if client.random.random() < 0.3:
                await ask(client, broker, message, transaction)
            if client.random.random() < 0.1:
                other = {"commit": "rollback", "rollback": "commit"}[verb]
                await decide(client, broker, message, transaction, other)
        await client.pause(0.1 + client.random.random() * 0.2)  # the pace of the load


async def _begin(client: Client, broker: str, message: str) -> Answer:
    queue_id = client.random.randrange(QUEUE_COUNT)
    body = {
        "topic": PAID_TOPIC,
        "queue_id": queue_id,
        "producer_group": PRODUCER_GROUP,
        "message": {"body": {"text": message}},
    }
    asked = {"queue": [broker, PAID_TOPIC, queue_id], "message": message}
    request = Request(broker, "POST", "/v1/transactions", body)
    return await client.do("begin", asked, request, _transaction_of)


def _transaction_of(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"transaction": told["transaction_id"]}


async def decide(client: Client, broker: str, message: str, transaction: str, verb: str) -> Answer:
    """Commit a transaction, or roll it back."""
    asked = {"message": message, "verb": verb}
    body = {"producer_group": PRODUCER_GROUP}
    target = f"/v1/transactions/{quote(transaction, safe='')}:{verb}"
    request = Request(broker, "POST", target, body)
    return await client.do("decide", asked, request, _state_of)


async def ask(client: Client, broker: str, message: str, transaction: str) -> Answer:
    """Ask for a transaction's state."""
    target = f"/v1/transactions/{quote(transaction, safe='')}"
    meanings = {"transaction-not-found": {"state": "unknown"}}
    request = Request(broker, "GET", target, meanings=meanings)
    asked = {"message": message}
    return await client.do("ask", asked, request, _state_of)


async def until_due() -> None:
    """Wait until each delayed message is due."""
    await asyncio.sleep(DELAY_SECONDS_MAX + 2.0)  # the delay itself


def _state_of(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"state": told["state"]}
