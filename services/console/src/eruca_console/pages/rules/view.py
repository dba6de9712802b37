"""The view of the rules at the controllers: each version with its author, reason and effect."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import urlencode

from eruca.contract.errors import ValidationError
from eruca.contract.limits import CURSOR_SIZE_MAX
from eruca.contract.policies import PolicyChange
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.policy_changes import effects_of
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

_PATH: Final = "/rules"


async def view(visit: Visit) -> Shown:
    """Return a page of the versions, and what one of them changed.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    check_parameters(visit.query, ("cursor", "number", "format"))
    cursor = visit.query.get("cursor") or None
    if cursor is not None and len(cursor) > CURSOR_SIZE_MAX:
        raise ValidationError("query.cursor: it is too long", fix="leave it out")
    number = visit.query.get("number", "")
    if number and not (number.isascii() and number.isdecimal()):
        raise ValidationError(f"query.number: expected a number, found {number[:20]!r}")
    policy, history = await asyncio.gather(
        outcome(visit.reading.policy()), outcome(visit.reading.policy_history(cursor))
    )
    if visit.wants_file:
        history.check()
    changes = history.value.changes if history.value is not None else []
    chosen = next((one for one in changes if str(one.number) == number), None)
    if number and history.is_known and chosen is None:
        raise ValidationError(
            f"query.number: version {number[:20]} is not on this page", fix="leave it out"
        )
    chosen = chosen or next(iter(changes), None)
    kept = {"cursor": cursor} if cursor else {}
    next_cursor = history.value.next_cursor if history.value is not None else None
    values: dict[str, Any] = {
        "newest": policy.value.number if policy.value is not None else None,
        "history": history,
        "changes": [
            (one, f"{_PATH}?{urlencode({**kept, 'number': one.number})}") for one in changes
        ],
        "chosen": chosen,
        "effects": [] if chosen is None else effects_of(chosen.differences),
        "left_out": 0 if chosen is None else _left_out(chosen),
        "first_url": _PATH if cursor else None,
        "next_url": f"{_PATH}?{urlencode({'cursor': next_cursor})}" if next_cursor else None,
        "file_url": f"{_PATH}?{urlencode({**kept, 'format': 'csv'})}",
    }
    table = CsvTable(
        "versions-of-the-rules",
        ("number", "version", "changed_at", "by", "reason", "rules", "keys"),
        [
            (
                *(one.number, one.version, one.changed_at, one.by),
                *(one.reason, one.rule_count, one.key_count),
            )
            for one in changes
        ],
    )
    recipe = recipes.Recipe("", "", recipes.cli("auth", "history"))
    return Shown(N_("Rules"), values, recipe, table)


def _left_out(change: PolicyChange) -> int:
    return change.differences.right_count - len(change.differences.rights)


PAGE: Final = Page("rules", _PATH, "access", view, parents=((N_("Access"), "/access"),))
