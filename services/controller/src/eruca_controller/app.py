"""The controller as an application: its document, its routes, and its limits.

:mod:`.wiring` makes the parts that answer the requests.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from eruca_access.explaining import explaining_router
from eruca_access.gate import PolicyGate
from eruca_access.kept_source import OwnSource
from eruca_access.settings import file_source, gate_of
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.versions import version_of
from eruca_controller.api import broker_groups, policy, status
from eruca_controller.settings import ControllerSettings
from eruca_controller.wiring import Rules, wired

KIND: Final = "controller"  # in audit records

_DESCRIPTION: Final = """
The controller keeps one row for each broker group: its master, the epoch of the master's term, its
in-sync set and its replicas. Brokers decide who becomes master; the controller is the arbiter,
which lets one of them have it. A row is changed by a `PUT` on the condition that it still has the
version that its author has read (`If-Match`). Of two such requests, one is refused with 412.

It also keeps the policy, by which every service decides who may do what: each version of it, with
its author. Services hold a request for it, and so know each change at once.

A controller has no state of its own. Any number of them work over one store: PostgreSQL, etcd, or a
file for one machine. Each change stays in the history, with its author and its reason.

A request without an answer, or with 503 `arbiter-unavailable`, may have been done. Repeat it
unchanged: a change that has been made already is recognized, and answered as the first time. Every
refusal is an `application/problem+json` document with a stable `code`.
"""
_TAGS: Final = (
    {"name": "broker groups", "description": "For brokers and operators: read and change rows"},
    {"name": "policy", "description": "For administrators and services: who may do what"},
    {"name": "status", "description": "The controller's own version and counts"},
)


def create_app(settings: ControllerSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the controller's application; its lifespan opens the store."""
    own = OwnSource(settings.policy_path.absolute()) if settings.auth == "controller" else None
    gate = gate_of(settings, KIND) if own is None else PolicyGate(own, service=KIND)
    first = None
    if own is not None and settings.auth_file is not None:
        first = file_source(settings).newest
    rules = Rules(own, None if first is None else first.document, is_closed=gate is not None)
    return ServiceApp(
        title="Eruca controller",
        summary="The arbiter of broker groups: masters, epochs and in-sync sets",
        description=_DESCRIPTION,
        version=version_of("eruca-controller"),
        tags=_TAGS,
        routers=[broker_groups.router, policy.router, status.router, explaining_router(gate)],
        lifespan=partial(wired, settings=settings, clock=clock or SystemClock(), rules=rules),
        guard=settings.guard(),
        gate=gate,
        client_share=settings.client_share,
    )
