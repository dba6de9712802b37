"""Topics that are created, looked at, filled and deleted; each has a name of its own."""

from __future__ import annotations

from chaos.client import Answer, Client, Request
from chaos.workloads.sending import send


async def come_and_go(client: Client, broker: str, names: list[str]) -> None:
    """Create topics and delete some; *names* gets all of them, for the final questions."""
    number = 0
    while not client.world.is_over.is_set():
        number += 1
        name = f"{client.name}-topic-{number}"
        names.append(name)
        created = await create(client, broker, name)
        await exists(client, broker, name)
        if created.is_ok:
            for _ in range(client.random.randrange(3)):
                await send(client, broker, name, 0, client.world.message(client.name))
            if client.random.random() < 0.5:
                await delete(client, broker, name)
                await exists(client, broker, name)
        await client.pause(0.5 + client.random.random())  # the pace of the load


async def create(client: Client, broker: str, name: str, queue_count: int = 1) -> Answer:
    """Create a topic."""
    counts = {"read_queue_count": queue_count, "write_queue_count": queue_count}
    request = Request(broker, "PUT", f"/v1/topics/{name}", counts)
    asked = {"broker": broker, "topic": name}
    return await client.do("create-topic", asked, request, lambda _: {})


async def delete(client: Client, broker: str, name: str) -> Answer:
    """Delete a topic."""
    request = Request(broker, "DELETE", f"/v1/topics/{name}")
    asked = {"broker": broker, "topic": name}
    return await client.do("delete-topic", asked, request, lambda _: {})


async def exists(client: Client, broker: str, name: str) -> Answer:
    """Ask whether a topic is there."""
    meanings = {"topic-not-found": {"exists": False}}
    request = Request(broker, "GET", f"/v1/topics/{name}", meanings=meanings)
    asked = {"broker": broker, "topic": name}
    return await client.do("topic", asked, request, lambda _: {"exists": True})
