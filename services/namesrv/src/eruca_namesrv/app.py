"""The name server as an application: its document, its routes, and its limits.

:mod:`.wiring` makes the parts that answer the requests.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from eruca_access.explaining import explaining_router
from eruca_access.settings import gate_of
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.versions import version_of
from eruca_namesrv.api import brokers, kv, status, topics
from eruca_namesrv.settings import NamesrvSettings
from eruca_namesrv.wiring import wired

_DESCRIPTION: Final = """
A name server knows which brokers are alive and which queues each topic has on them. By default a
broker sends every name server a heartbeat each 5 seconds. It sends its topics when they have
changed, when the name server lacks them, and each 30 seconds. A broker that is silent for
20 seconds leaves the routes. Clients may ask any name server.

A name server stores only the key-value table. The table also remembers the ordered topics of
brokers that are away: their routes have an order config and no queues. After a restart a name
server does not know the brokers until their next heartbeats. Until then, lists and look-ups that
find nothing are answered with 503 `name-server-settling` and `Retry-After`.

Name servers never talk to each other. Two of them may disagree until a broker has reached both, or
has expired on both. Every refusal is an `application/problem+json` document with a stable `code`.
"""
_TAGS: Final = (
    {"name": "topics", "description": "For clients: find a topic's queues"},
    {"name": "brokers", "description": "For brokers: register and be found"},
    {"name": "key-value table", "description": "Small configuration shared by all"},
    {"name": "status", "description": "The name server's own version and counts"},
)


def create_app(settings: NamesrvSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the name server's application; its lifespan opens the key-value table."""
    gate = gate_of(settings, "namesrv")
    return ServiceApp(
        title="Eruca name server",
        summary="Live brokers, and the queues each topic has on them",
        description=_DESCRIPTION,
        version=version_of("eruca-namesrv"),
        tags=_TAGS,
        routers=[topics.router, brokers.router, kv.router, status.router, explaining_router(gate)],
        lifespan=partial(wired, settings=settings, clock=clock or SystemClock()),
        body_bytes_max=settings.body_bytes_max,
        bodies_bytes_max=settings.bodies_bytes_max,
        guard=settings.guard(),
        gate=gate,
        client_share=settings.client_share,
    )
