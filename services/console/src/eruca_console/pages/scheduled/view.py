"""The view of the list of scheduled messages."""

from __future__ import annotations

from typing import Any, Final

from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

READ_MAX: Final = 1_000  # messages
COLUMNS: Final = ("deliver", "topic", "stored", "size")


async def view(visit: Visit) -> Shown:
    """Return a page of the scheduled messages."""
    state = ListState.of("/scheduled", visit.query, columns=COLUMNS)
    answered = await visit.reading.scheduled(None, READ_MAX)
    messages, silent = answered.value.value, answered.value.silent
    shown = listed(
        messages,
        state,
        name_of=lambda held: " ".join(
            filter(None, (held.message.message_id, held.message.topic, held.broker_name))
        ),
        key_of={
            "deliver": lambda held: held.message.deliver_at,
            "topic": lambda held: held.message.topic,
            "stored": lambda held: held.message.stored_at,
            "size": lambda held: held.message.size,
        },
        is_whole=visit.wants_file,
    )
    is_cut = len(messages) == READ_MAX
    values: dict[str, Any] = {
        "answered": answered,
        "silent": silent,
        "count": None if silent or is_cut else len(messages),
        "next_at": messages[0].message.deliver_at if messages and not silent else None,
        "list": shown,
        "state": shown.state,
        "is_cut": is_cut,
        "read_max": READ_MAX,
    }
    table = CsvTable(
        "scheduled",
        (
            *("deliver_at", "message_id", "topic", "broker", "queue", "stored_at", "bytes"),
            "recall_handle",
        ),
        [
            (
                *(held.message.deliver_at, held.message.message_id, held.message.topic),
                *(held.broker_name, held.message.queue_id, held.message.stored_at),
                *(held.message.size, held.message.recall_handle),
            )
            for held in shown.rows
        ],
        is_whole=not (silent or is_cut),
    )
    recipe = recipes.Recipe(
        recipes.curl(f"{await visit.reading.any_broker_url()}/v1/scheduled", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            "for held in client.admin.scheduled():",
            "    print(held.message.deliver_at, held.message.topic, held.message.message_id)",
        ),
        recipes.cli("scheduled", "list"),
    )
    return Shown(N_("Scheduled messages"), values, recipe, table)


PAGE: Final = Page("scheduled", "/scheduled", "scheduled", view)
