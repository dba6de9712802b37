"""The SDK as programs use it: a producer that retries by itself, and members of a push consumer.

They learn the brokers' URLs from the name server, and so go through the clients' links. A producer
retries, and at another group too. So a message may be there twice, as the SDK says; none that it
has reported as sent may be missing, and each is handled at least once.
"""

from __future__ import annotations

from typing import Final

import eruca
from chaos.client import Client
from chaos.cluster import Cluster

TOPIC: Final = "sdk-orders"
GROUP: Final = "sdk-readers"
QUEUE_COUNT: Final = 2
SEND_SECONDS: Final = 20.0


def client_of(cluster: Cluster) -> eruca.AsyncClient:
    """Return a client of the cluster."""
    return eruca.AsyncClient([cluster.parties["namesrv"].url], timeout_seconds=4.0)


async def produce(client: Client) -> None:
    """Send message after message; an error says nothing about whether it is stored."""
    world = client.world
    async with (
        client_of(world.cluster) as sdk,
        sdk.producer(send_timeout_seconds=SEND_SECONDS) as producer,
    ):
        while not world.is_over.is_set():
            message = world.message(client.name)
            asked = {"queue": ["", TOPIC, 0], "message": message}
            world.recorder.record("invoke", client.name, "send", asked)
            try:
                sent = await producer.send(eruca.Message(TOPIC, message))
            except eruca.ErucaError as error:
                world.recorder.record("info", client.name, "send", {"code": error.code})
            else:
                told = {
                    "queue": [sent.queue.broker_name, TOPIC, sent.queue.queue_id],
                    "offset": sent.queue_offset,
                }
                world.recorder.record("ok", client.name, "send", told)
            await client.pause(0.05 + client.random.random() * 0.1)  # the pace of the load


async def handle(client: Client) -> None:
    """Be a member of the push consumer until the run has settled."""
    world = client.world

    async def note(message: eruca.ReceivedMessage) -> None:
        asked = {
            "group": GROUP,
            "queue": [message.queue.broker_name, TOPIC, message.queue.queue_id],
            "offset": message.queue_offset,
            "message": message.text(),
        }
        world.recorder.record_at(world.recorder.now(), client.name, "handle", asked, {})

    async with client_of(world.cluster) as sdk:
        consumer = sdk.push_consumer(
            GROUP, start="earliest", membership=eruca.Membership(session_seconds=6.0)
        )
        consumer.subscribe(TOPIC, handler=note)
        async with consumer:
            await world.handled.wait()
