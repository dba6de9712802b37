"""``eruca-controller --check``: look at the store of the rows, and change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

from eruca.contract.errors import ErucaError
from eruca_chassis.counts import counted
from eruca_chassis.running.checking import Finding, directory_finding
from eruca_chassis.start import StartError
from eruca_controller.settings import ControllerSettings
from eruca_controller.wiring import MIGRATIONS, other_stores

_SUBJECT: Final = "store"
_SECONDS: Final = 10.0  # an etcd or an API server that is silent for so long is unreachable


def findings(settings: ControllerSettings) -> Iterator[Finding]:
    """Yield what a start would find in the store."""
    if settings.store == "postgres":
        from eruca_controller.store.tables import SCHEMA
        from eruca_postgres import inspection

        yield from inspection.findings(settings, SCHEMA, MIGRATIONS)
        return
    if settings.store == "file":
        fix = "set ERUCA_CONTROLLER_FILE to a file that it may read and write"
        found = directory_finding(settings.file.parent, _SUBJECT, fix=fix)
        if found is not None:
            yield found
            return
    yield asyncio.run(_answer(settings))


async def _answer(settings: ControllerSettings) -> Finding:
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(_SECONDS):
            stores = await other_stores(stack, settings)
            count = await stores.groups.count()
    except TimeoutError:
        return Finding(
            "fault",
            _SUBJECT,
            f"{settings.store} did not answer in {_SECONDS:g} s; start it, or set "
            f"ERUCA_CONTROLLER_{settings.store.upper()}_* to one that runs",
        )
    except (ErucaError, StartError) as error:
        return Finding("fault", _SUBJECT, str(error))
    return Finding("ok", _SUBJECT, f"{settings.store} has {counted(count, 'row')} of broker groups")
