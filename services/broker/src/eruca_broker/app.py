"""The broker as an application: its document, its routes, and its limits.

:mod:`.wiring` makes the parts that answer the requests.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from eruca_access.explaining import explaining_router
from eruca_access.settings import gate_of
from eruca_broker.api import (
    audit,
    dead_letters,
    deliveries,
    group_offsets,
    groups,
    log,
    members,
    offsets,
    queue_locks,
    replication,
    retries,
    scheduled,
    status,
    topics,
)
from eruca_broker.api.messages import find, pull, send
from eruca_broker.api.transactions import checking, deciding, many, views
from eruca_broker.settings import BrokerSettings
from eruca_broker.wiring import wired
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.versions import version_of

_DESCRIPTION: Final = """
A broker stores messages in queues and hands them out from any offset on. It has one append-only
log; topics' queues, the key index and groups' offsets are projections of it.

A 2xx answer to a send means that the message is in the log, as durable as the answer's `durability`
says. Queues' offsets are 0, 1, 2 … without gaps. Offsets are JSON integers of up to 64 bits, times
RFC 3339 in UTC. Every refusal is an `application/problem+json` document whose `code` is stable.

Sending and pulling also speak `application/vnd.eruca.records`: the log's own records in batches,
which is what the SDK uses.
"""
_TAGS: Final = (
    {"name": "messages", "description": "Send, pull and find messages"},
    {"name": "topics", "description": "Create, change and delete topics"},
    {"name": "offsets", "description": "Get offsets of queues, and commit those of groups"},
    {"name": "groups", "description": "Consumer groups: settings, members, locks of queues"},
    {"name": "retries", "description": "Redeliver messages that were not consumed"},
    {"name": "deliveries", "description": "Consume by plain HTTP, message by message"},
    {"name": "dead letters", "description": "Messages that failed after their last retry"},
    {"name": "delayed messages", "description": "List and recall scheduled messages"},
    {"name": "transactions", "description": "Messages that are stored first and decided later"},
    {"name": "log", "description": "The log itself, for projections"},
    {"name": "replication", "description": "The copies of the log in a broker group"},
    {"name": "audit", "description": "Records of who did what"},
    {"name": "status", "description": "The broker's identity and state"},
)
_ROUTERS: Final = (  # in the document's order
    topics.router,
    send.router,
    pull.router,
    find.router,
    offsets.router,
    groups.router,
    members.router,
    queue_locks.router,
    group_offsets.router,
    groups.lags_router,
    log.router,
    retries.router,
    dead_letters.router,
    deliveries.router,
    scheduled.router,
    deciding.router,
    many.router,
    views.router,
    checking.router,
    replication.router,
    audit.router,
    status.router,
)


def create_app(settings: BrokerSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the broker's application; its lifespan runs the broker's parts."""
    gate = gate_of(settings, "broker", settings.name)
    clock = clock or SystemClock()
    return ServiceApp(
        title="Eruca broker",
        summary="One commit log, and the queues, index and offsets made from it",
        description=_DESCRIPTION,
        version=version_of("eruca-broker"),
        tags=_TAGS,
        routers=[*_ROUTERS, explaining_router(gate)],
        lifespan=partial(wired, settings=settings, clock=clock),
        body_bytes_max=settings.body_bytes_max,
        guard=settings.guard(),
        gate=gate,
        client_share=settings.client_share,
    )
