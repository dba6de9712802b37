"""The controller as an application: its document, its routes, and its limits.

:mod:`.wiring` makes the parts that answer the requests.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Final

from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_controller.api import broker_groups, status
from eruca_controller.settings import ControllerSettings
from eruca_controller.wiring import wired

_DESCRIPTION: Final = """
The controller keeps one row for each broker group: its master, the epoch of the master's term, its
in-sync set and its replicas. Brokers decide who becomes master; the controller is the arbiter,
which lets one of them have it. A row is changed by a `PUT` on the condition that it still has the
version that its author has read (`If-Match`). Of two such requests, one is refused with 412.

A controller has no state of its own. Any number of them work over one store: PostgreSQL, etcd, or a
file for one machine. Each change stays in the history, with its author and its reason.

A request without an answer, or with 503 `arbiter-unavailable`, may have been done. Repeat it
unchanged: a change that has been made already is recognized, and answered as the first time. Every
refusal is an `application/problem+json` document with a stable `code`.
"""
_TAGS: Final = (
    {"name": "broker groups", "description": "For brokers and operators: read and change rows"},
    {"name": "status", "description": "The controller's own version and counts"},
)


def create_app(settings: ControllerSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the controller's application; its lifespan opens the store."""
    return ServiceApp(
        title="Eruca controller",
        summary="The arbiter of broker groups: masters, epochs and in-sync sets",
        description=_DESCRIPTION,
        version=version("eruca-controller"),
        tags=_TAGS,
        routers=[broker_groups.router, status.router],
        lifespan=partial(wired, settings=settings, clock=clock or SystemClock()),
        guard=settings.guard(),
        client_share=settings.client_share,
    )
