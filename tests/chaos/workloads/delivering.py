"""Consumers by deliveries (pop): receive under a lease, then acknowledge or reject."""

from __future__ import annotations

from typing import Any, Final

from chaos.client import Answer, Client, Request
from chaos.workloads.sending import send, text_of

TOPIC: Final = "parcels"
GROUP: Final = "couriers"
QUEUE_COUNT: Final = 2
INVISIBLE_SECONDS: Final = 4.0


async def send_parcels(client: Client, broker: str) -> None:
    """Send what the couriers deliver."""
    while not client.world.is_over.is_set():
        queue_id = client.random.randrange(QUEUE_COUNT)
        await send(client, broker, TOPIC, queue_id, client.world.message(client.name))
        await client.pause(0.1 + client.random.random() * 0.1)  # the pace of the load


async def carry(client: Client, broker: str) -> None:
    """Receive and acknowledge; reject some, and forget some."""
    while not client.world.is_over.is_set():
        await carry_some(client, broker, forget=0.05, reject=0.1)


async def carry_some(
    client: Client, broker: str, *, forget: float = 0.0, reject: float = 0.0
) -> Answer:
    """Receive once, and finish what was received."""
    answer = await receive(client, broker)
    deliveries = answer.told.get("deliveries", [])
    if deliveries and client.random.random() >= forget:
        op = "nack" if client.random.random() < reject else "ack"
        await finish(client, broker, op, deliveries)
    return answer


async def receive(client: Client, broker: str) -> Answer:
    """Receive messages under a lease."""
    asked = {
        "group": f"{GROUP}@{broker}",
        "topic": TOPIC,
        "invisible_seconds": INVISIBLE_SECONDS,
    }
    body = {
        "topic": TOPIC,
        "count_max": 8,
        "invisible_seconds": INVISIBLE_SECONDS,
        "wait_seconds": 0.5,
        "start": "earliest",
    }

    def read(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        return {
            "deliveries": [
                {
                    "queue": [broker, TOPIC, one["message"]["queue_id"]],
                    "offset": one["message"]["queue_offset"],
                    "message": text_of(one["message"]),
                    "handle": one["handle"],
                    "attempt": one["attempt"],
                }
                for one in told["deliveries"]
            ]
        }

    request = Request(broker, "POST", f"/v1/groups/{GROUP}/deliveries", body)
    return await client.do("deliver", asked, request, read)


async def finish(client: Client, broker: str, op: str, deliveries: list[dict[str, Any]]) -> Answer:
    """Acknowledge (``ack``) or reject (``nack``) what was received, all of it or none."""
    kept = [{k: one[k] for k in ("queue", "offset", "message")} for one in deliveries]
    body: dict[str, Any] = {"handles": [one["handle"] for one in deliveries]}
    if op == "nack":
        body["delay_seconds"] = 1.0
    request = Request(broker, "POST", f"/v1/groups/{GROUP}/deliveries:{op}", body)
    asked = {"group": f"{GROUP}@{broker}", "deliveries": kept}
    return await client.do(op, asked, request, lambda _: {})
