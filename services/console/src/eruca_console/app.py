"""The console as an application: its document, its pages, and its limits.

:mod:`.wiring` makes the parts that answer the requests.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from eruca_access.explaining import explaining_router
from eruca_access.settings import gate_of
from eruca_chassis.app import ServiceApp
from eruca_chassis.versions import version_of
from eruca_console.pages import PAGES
from eruca_console.settings import ConsoleSettings
from eruca_console.shell.routes import console_router
from eruca_console.wiring import wired

_DESCRIPTION: Final = """
The console has pages for people, which are no part of this document: open `/` in a browser. It is
an ordinary client of the cluster. It calls every service with the credentials of the person who
looks at a page.
"""


def create_app(settings: ConsoleSettings) -> ServiceApp:
    """Return the console's application; its lifespan opens its clients."""
    gate = gate_of(settings, "console")
    return ServiceApp(
        title="Eruca console",
        summary="Pages for the people who run and use a cluster",
        description=_DESCRIPTION,
        version=version_of("eruca-console"),
        routers=[explaining_router(gate), console_router(PAGES)],
        lifespan=partial(wired, settings=settings),
        guard=settings.guard(),
        gate=gate,
        client_share=settings.client_share,
        front="overview",
    )
