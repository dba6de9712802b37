"""The view of what a reset would change, queue by queue, and the act that resets.

A time is fixed when the page is asked for: the act resets to the time that the preview had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from eruca import MessageQueue, QueueReset
from eruca.contract.errors import ErucaError, UnauthenticatedError, ValidationError
from eruca.contract.names import is_derived_topic
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.core.times import typed_time
from eruca_console.shell.forms import check_typed, text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit

ENDS: Final[Mapping[str, str]] = {
    "earliest": N_("the earliest message"),
    "latest": N_("the end"),
    "time": N_("a time"),
}
_TITLE: Final = N_("Reset a group's position")


@dataclass(frozen=True, slots=True)
class Goal:
    """The place to reset to.

    Attributes:
        topic: The topic.
        to: One of ``ENDS``.
        at: The time; empty: it is an end.
        place: The same for the SDK.
    """

    topic: str
    to: str
    at: str
    place: Literal["earliest", "latest"] | datetime

    @classmethod
    def of(cls, topic: str, to: str, at: str) -> Goal:
        """Return the goal that the form says.

        Raises:
            ValidationError: A field is missing or invalid.
        """
        if to in ("earliest", "latest"):
            return cls(topic, to, "", "earliest" if to == "earliest" else "latest")
        if to != "time":
            raise ValidationError(
                f"to: expected earliest, latest or time, found {to[:20]!r}",
                fix="choose a place in the form",
            )
        place = typed_time(at, "at")
        if place is None:
            raise ValidationError("at: expected a time, found nothing", fix="give a time in UTC")
        return cls(topic, to, at, place)


async def view(visit: Visit) -> Shown:
    """Return the form and, for a topic, what the reset would change.

    Raises:
        GroupNotFoundError: No broker knows the group.
        ValidationError: A parameter is unknown or invalid.
    """
    group = visit.path["group"]
    check_parameters(visit.query, ("topic", "to", "at"))
    reading = visit.reading
    configs, lag = await asyncio.gather(reading.group(group), outcome(reading.lag(group)))
    topics = {one.topic for config in configs.value.value.values() for one in config.subscriptions}
    if lag.value is not None:
        topics |= {queue.topic for queue in lag.value.value.queues}
    topic = visit.query.get("topic", "")
    goal = None
    preview: Mapping[MessageQueue, QueueReset] | None = None
    if topic:
        goal = Goal.of(topic, visit.query.get("to", ""), visit.query.get("at", ""))
        preview = await reading.client.admin.groups.reset(group, topic, goal.place, dry_run=True)
    silent = await reading.absent()
    values: dict[str, Any] = {
        **_frame(group),
        "step": "preview",
        "configs": configs,
        "topics": sorted(
            topics | ({topic} if topic else set()), key=lambda name: (is_derived_topic(name), name)
        ),
        "chosen": topic,
        "to": visit.query.get("to", "earliest"),
        "at": visit.query.get("at", ""),
        "goal": goal,
        "silent": silent,
        "rows": [] if preview is None else [(queue, one, None) for queue, one in preview.items()],
        **_totals(preview or {}, silent),
    }
    return Shown(_TITLE, values, _recipe(visit, group, goal))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Reset the position, and show the outcome of each queue.

    Raises:
        ValidationError: A field is missing or invalid; nothing was done.
    """
    group = visit.path["group"]
    goal = Goal.of(text_of(fields, "topic"), text_of(fields, "to"), text_of(fields, "at"))
    check_typed(fields, group)
    groups = visit.reading.client.admin.groups
    # Nothing is reset unless every broker can do it.
    asked = await groups.reset(group, goal.topic, goal.place, dry_run=True)
    brokers = sorted({queue.broker_name for queue in asked})

    async def at(name: str) -> Mapping[MessageQueue, QueueReset] | ErucaError:
        queues = [queue for queue in asked if queue.broker_name == name]
        try:
            return await groups.reset(group, goal.topic, goal.place, queues=queues)
        except UnauthenticatedError:
            raise
        except ErucaError as error:
            return error

    answers = dict(zip(brokers, await asyncio.gather(*map(at, brokers)), strict=True))
    visit.reading.cache.clear()
    done: dict[MessageQueue, QueueReset] = {}
    rows: list[tuple[MessageQueue, QueueReset, ErucaError | None]] = []
    for queue, planned in asked.items():
        answer = answers[queue.broker_name]
        if isinstance(answer, ErucaError):
            rows.append((queue, planned, answer))
        else:
            done[queue] = answer[queue]
            rows.append((queue, answer[queue], None))
    silent = await visit.reading.absent()
    values: dict[str, Any] = {
        **_frame(group),
        "step": "done",
        "goal": goal,
        "rows": rows,
        "silent": silent,
        **_totals(done, silent),
    }
    return Shown(_TITLE, values, _recipe(visit, group, goal))


def _totals(
    resets: Mapping[MessageQueue, QueueReset], silent: Mapping[str, ErucaError]
) -> dict[str, int | None]:
    """Return how many offsets are consumed again, and passed over; None: unknown."""
    moves = [
        None if one.from_offset is None else one.to_offset - one.from_offset
        for one in resets.values()
    ]
    known = [move for move in moves if move is not None]
    is_whole = len(known) == len(moves) and not silent
    return {
        "again": sum(-move for move in known if move < 0) if is_whole else None,
        "skipped": sum(move for move in known if move > 0) if is_whole else None,
    }


def _path(group: str) -> str:
    return f"/groups/{group}/reset"


def _frame(group: str) -> dict[str, Any]:
    return {"group": group, "path": _path(group), "ends": ENDS}


def _recipe(visit: Visit, group: str, goal: Goal | None) -> recipes.Recipe:
    topic = "TOPIC" if goal is None else goal.topic
    place: str = "earliest" if goal is None else goal.to
    shown = repr(place)
    lines = ["from datetime import datetime"] if place == "time" else []
    if goal is not None and isinstance(goal.place, datetime):
        place = goal.place.isoformat()
        shown = f"datetime.fromisoformat({place!r})"
    call = f"client.admin.groups.reset({group!r}, {topic!r}, {shown}, dry_run=True)"
    return recipes.Recipe(
        "",
        recipes.python(visit.namesrv_urls, *lines, f"print({call})"),
        recipes.cli("group", "reset", group, "--topic", topic, "--to", place, "--dry-run"),
    )


PAGE: Final = Page(
    "group_reset",
    "/groups/{group}/reset",
    "groups",
    view,
    parents=((N_("Groups"), "/groups"),),
    act=act,
    is_live=False,
)
