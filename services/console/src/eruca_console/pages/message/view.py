"""The view of one message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from eruca.contract.errors import ErucaError, ValidationError
from eruca.contract.queries import MessageFound, Timeline
from eruca_console.cluster.outcomes import Outcome, outcome
from eruca_console.core import recipes
from eruca_console.core.bodies import VIEWS, BodyView, body_view
from eruca_console.core.life_line import life_line
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.core.why import STATES, Reason, reason_of
from eruca_console.shell.pages import Page, Shown, Visit

KINDS: Final[Mapping[str, str]] = {
    "half": N_("half message stored"),
    "half_carried": N_("half message stored again"),
    "checked": N_("checked"),
    "decided": N_("decided"),
    "parked": N_("parked"),
    "delayed": N_("delayed"),
    "recalled": N_("recalled"),
    "stored": N_("stored"),
    "leased": N_("received"),
    "lease_extended": N_("lease extended"),
    "acked": N_("acknowledged"),
    "nacked": N_("rejected"),
    "lease_expired": N_("lease expired"),
    "sent_back": N_("sent back"),
    "retry": N_("offered again"),
    "dead_letter": N_("dead letter"),
    "redriven": N_("redriven"),
}
_NOT_SUBSCRIBED: Final = N_("The group does not subscribe to the topic %(topic)s.")
_NO_GROUP: Final = N_("No broker that answers knows this group.")
_NOT_KNOWN: Final = N_("The group subscribes to the topic, and nothing is known of this message.")


async def view(visit: Visit) -> Shown:
    """Return a message.

    Raises:
        MessageNotFoundError: There is none with this id.
        ValidationError: A parameter is unknown or invalid.
    """
    message_id = visit.path["message_id"]
    check_parameters(visit.query, ("view", "group"))
    wanted = visit.query.get("view", "")
    if wanted not in ("", *VIEWS):
        raise ValidationError("query.view: unknown", fix=f"valid views: {', '.join(VIEWS)}")
    found = await visit.reading.message(message_id)
    life, groups = await asyncio.gather(
        outcome(visit.reading.timeline(message_id)), outcome(visit.reading.groups())
    )
    asked = visit.query.get("group", "").strip()
    message = found.value.message
    values: dict[str, Any] = {
        "message_id": message_id,
        "path": f"/messages/{message_id}",
        "found": found,
        "message": message,
        "body": _body(found.value, wanted),
        "life": life,
        "spans": [] if life.value is None else life_line(life.value.events),
        "kinds": KINDS,
        "states": STATES,
        "reasons": []
        if life.value is None
        else [(one, reason_of(one)) for one in life.value.groups],
        "asked": asked,
        "answer": _why(asked, message.topic, life, groups) if asked else None,
    }
    query = await visit.reading.query_url()
    recipe = recipes.Recipe(
        recipes.curl(f"{query}/v1/messages/{message_id}/timeline", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            f"for event in client.query.timeline({message_id!r}).events:",
            "    print(event.at, event.kind, event.detail)",
        ),
        recipes.cli("timeline", message_id),
    )
    return Shown(message_id, values, recipe)


def _body(found: MessageFound, wanted: str) -> BodyView | ErucaError:
    """Return the body, or the reason why it is missing."""
    try:
        return body_view(found.message.octets(), wanted)
    except ErucaError as error:
        return error


def _why(
    group: str, topic: str, life: Outcome[Timeline], groups: Outcome[Any]
) -> list[Reason] | None:
    """Return why *group* has not consumed a message of *topic*; None: unknown."""
    if life.value is None:
        return None
    found = [reason_of(one) for one in life.value.groups if one.group == group]
    if found:
        return found
    if groups.value is None or not groups.value.is_whole:
        return None
    configs = groups.value.value.get(group)
    if configs is None:
        return [Reason(_NO_GROUP, {})]
    subscribed = {one.topic for config in configs.values() for one in config.subscriptions}
    text = _NOT_KNOWN if topic in subscribed else _NOT_SUBSCRIBED
    return [Reason(text, {"topic": topic})]


PAGE: Final = Page(
    "message",
    "/messages/{message_id}",
    "messages",
    view,
    parents=((N_("Messages"), "/messages"),),
    is_named=True,
)
