"""The view of a scheduled message that may be recalled, and the act that recalls it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from eruca.contract.errors import ValidationError
from eruca.contract.recall_handles import (
    MalformedRecallHandleError,
    RecallHandle,
    decode_recall_handle,
)
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.pages.scheduled.view import READ_MAX
from eruca_console.shell.forms import check_typed
from eruca_console.shell.pages import Fields, Page, Shown, Visit


async def view(visit: Visit) -> Shown:
    """Return what a recall would cancel.

    Raises:
        ValidationError: The path has no recall handle.
    """
    text, handle = _handle(visit)
    check_parameters(visit.query, ())
    answered = await visit.reading.scheduled(handle.topic, READ_MAX)
    gathered = answered.value
    waits: bool | None = any(held.message.recall_handle == text for held in gathered.value)
    if not waits and (handle.broker_name not in gathered.names or len(gathered.value) == READ_MAX):
        waits = None
    values: dict[str, Any] = {
        **_frame(text, handle),
        "step": "preview",
        "answered": answered,
        "waits": waits,
    }
    return Shown(N_("Recall a scheduled message"), values, _recipe(visit, text))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Recall the message.

    Raises:
        AlreadyDeliveredError: It is delivered, or its delivery has begun.
        ScheduledNotFoundError: The broker never had it.
        ValidationError: The topic is not typed; nothing was done.
    """
    text, handle = _handle(visit)
    check_typed(fields, handle.topic)
    await visit.reading.client.admin.recall_scheduled(text)
    visit.reading.cache.clear()
    values: dict[str, Any] = {**_frame(text, handle), "step": "done"}
    return Shown(N_("Recall a scheduled message"), values, _recipe(visit, text))


def _handle(visit: Visit) -> tuple[str, RecallHandle]:
    text = visit.path["handle"]
    try:
        return text, decode_recall_handle(text)
    except MalformedRecallHandleError as error:
        raise ValidationError(
            f"path.handle: {error}", fix="choose a message in the list of scheduled messages"
        ) from None


def _frame(text: str, handle: RecallHandle) -> dict[str, Any]:
    return {
        "path": f"/scheduled/{text}",
        "handle": handle,
        "deliver_at": datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=handle.deliver_at_ms),
    }


def _recipe(visit: Visit, text: str) -> recipes.Recipe:
    return recipes.Recipe(
        "",
        recipes.python(visit.namesrv_urls, f"client.admin.recall_scheduled({text!r})"),
        recipes.cli("scheduled", "recall", text),
    )


PAGE: Final = Page(
    "scheduled_recall",
    "/scheduled/{handle}",
    "scheduled",
    view,
    parents=((N_("Scheduled messages"), "/scheduled"),),
    act=act,
    is_live=False,
)
