"""The view of a broker's master and its possible successors, and the act that switches.

The master decides: it hands over only to a replica that is in sync, and stays the master if that
one is too slow. So nothing that was acknowledged is lost.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Final

from eruca.contract.errors import (
    BrokerNotFoundError,
    ErucaError,
    UnauthenticatedError,
    ValidationError,
)
from eruca.contract.replication import SwitchRequest, SwitchResult
from eruca.contract.routes import BrokerGroup
from eruca.core.routing.route_table import address_for
from eruca.services.cluster import parsed, send_model
from eruca_console.cluster.outcomes import outcome
from eruca_console.cluster.reading import Reading
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.shell.forms import check_typed, text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit

SWITCH_SECONDS: Final = 30.0  # an orderly hand-over takes less than one
LEAD_SECONDS: Final = 15.0  # until the successor leads
_LOOK_SECONDS: Final = 0.25
_TITLE: Final = N_("Switch the master")
_TARGET: Final = "/v1/replication/switch"


async def view(visit: Visit) -> Shown:
    """Return the master and the replicas that may follow it.

    Raises:
        BrokerNotFoundError: The broker has no registered master.
    """
    check_parameters(visit.query, ())
    name = visit.path["broker"]
    group, _ = await _group(visit.reading, name)
    master = next(one for one in group.brokers if one.role == "master")
    status = await outcome(visit.reading.replica(master))
    followers = status.value.replicas if status.value is not None else []
    values: dict[str, Any] = {
        "name": name,
        "path": f"/brokers/{name}/switch",
        "step": "preview",
        "master": master,
        "status": status,
        "followers": followers,
        "candidates": sorted(one.replica_id for one in followers if one.in_sync),
    }
    return Shown(_TITLE, values, _recipe(name, None))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Switch the master, and wait until the successor leads.

    Raises:
        ConflictError: No such replica is in sync; the master stays.
        ValidationError: A field is missing or invalid; nothing was done.
    """
    name = visit.path["broker"]
    to = _replica_id(text_of(fields, "to"))
    check_typed(fields, name)
    reading = visit.reading
    _, url = await _group(reading, name)
    context = reading.client.context
    answer = await send_model(
        context.transport, "POST", url, _TARGET, SwitchRequest(to=to), timeout=SWITCH_SECONDS
    )
    result = parsed(SwitchResult, answer, url + _TARGET)
    epoch = await _epoch_led(reading, result)
    reading.cache.clear()
    values: dict[str, Any] = {"name": name, "step": "done", "result": result, "epoch": epoch}
    return Shown(_TITLE, values, _recipe(name, result.master.replica_id))


async def _group(reading: Reading, name: str) -> tuple[BrokerGroup, str]:
    """Return a broker and the URL of its master."""
    for group in (await reading.brokers()).value:
        url = reading.url_of(group)
        if group.broker_name == name and url is not None:
            return group, url
    raise BrokerNotFoundError(
        f"{name[:80]!r} has no registered master",
        fix="if it is down, the others elect another one by themselves within seconds",
    )


async def _epoch_led(reading: Reading, result: SwitchResult) -> int | None:
    """Return the epoch that the successor leads; None: it does not lead yet."""
    url = address_for(result.master_urls, reading.client.settings.network)
    until = monotonic() + LEAD_SECONDS
    while monotonic() < until:
        try:
            status = await reading.replica_at(url)
        except UnauthenticatedError:
            raise
        except ErucaError:
            status = None  # it may be busy with the take-over; the page says if it does not end
        if status is not None and status.role == "master" and status.epoch >= result.epoch:
            return status.epoch
        await asyncio.sleep(_LOOK_SECONDS)
    return None


def _replica_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:10]) < 2**31):
        raise ValidationError(
            f"to: expected the id of a replica, found {text[:20]!r}", fix="choose one in the form"
        )
    return int(text[:10])


def _recipe(name: str, to: int | None) -> recipes.Recipe:
    return recipes.Recipe(
        "", "", recipes.cli("broker", "switch", name, *(() if to is None else ("--to", str(to))))
    )


PAGE: Final = Page(
    "broker_switch",
    "/brokers/{broker}/switch",
    "brokers",
    view,
    parents=((N_("Brokers"), "/brokers"),),
    act=act,
    is_live=False,
)
