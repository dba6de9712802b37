"""The view of the audit records, the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from eruca.contract.audit import AUDIT_EVENTS
from eruca.contract.errors import ValidationError
from eruca_console.cluster.audit import READ_MAX
from eruca_console.core import recipes
from eruca_console.core.facets import choices, matches
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

FACETS: Final = ("event", "principal", "operation", "decision")
HOURS: Final[Mapping[str, tuple[int, str]]] = {
    "1h": (1, N_("an hour")),
    "1d": (24, N_("a day")),
    "7d": (168, N_("seven days")),
}
SINCE_DEFAULT: Final = "1d"
FIELDS: Final = (
    *("at", "event", "principal", "address", "operation", "resource", "decision", "status"),
    *("reason", "rule", "detail", "count", "service", "request_id"),
)
EVENTS: Final[Mapping[str, str]] = {
    "act": N_("act"),
    "refusal": N_("refusal"),
    "refusals_left_out": N_("more refusals"),
    "credential_used": N_("credential used"),
    "rules_changed": N_("rules changed"),
    "rules_stale": N_("rules stale"),
    "records_lost": N_("records lost"),
}
assert EVENTS.keys() == set(AUDIT_EVENTS)


async def view(visit: Visit) -> Shown:
    """Return a page of the audit records.

    Raises:
        ForbiddenError: The caller may not read them.
        ValidationError: A parameter is unknown or invalid.
    """
    state = ListState.of("/audit", visit.query, columns=("at",), others=("since", *FACETS))
    if "sort" not in visit.query:
        state = replace(state, is_descending=True)
    since = state.others.get("since", SINCE_DEFAULT)
    if since not in HOURS:
        raise ValidationError(
            f"query.since: expected one of {', '.join(HOURS)}, found {since[:20]!r}"
        )
    answered = await visit.reading.audit(HOURS[since][0])
    records = [record for one in answered.value.value for record in one.records]
    silent = answered.value.silent
    is_cut = any(one.is_cut for one in answered.value.value)
    chosen = {name: value for name, value in state.others.items() if name in FACETS}
    shown = listed(
        [record for record in records if matches(record, chosen, _value_of)],
        state,
        name_of=lambda record: " ".join(str(record.get(name) or "") for name in FIELDS),
        key_of={"at": lambda record: str(record["at"])},
        is_whole=visit.wants_file,
    )
    others = {name: value for name, value in state.others.items() if name != "since"}
    values: dict[str, Any] = {
        "answered": answered,
        "silent": silent,
        "rows": [(datetime.fromisoformat(str(one["at"])), one) for one in shown.rows],
        "list": shown,
        "state": shown.state,
        "facets": choices(records, state, FACETS, _value_of),
        "spans": [
            (text, state.url(others={**others, "since": name}), name == since)
            for name, (_, text) in HOURS.items()
        ],
        "events": EVENTS,
        "is_cut": is_cut,
        "read_max": READ_MAX,
    }
    table = CsvTable(
        "audit",
        FIELDS,
        [[record.get(name) for name in FIELDS] for record in shown.rows],
        is_whole=not (silent or is_cut),
    )
    recipe = recipes.Recipe("", "", recipes.cli("audit", "find", "--since", since))
    return Shown(N_("Audit"), values, recipe, table)


def _value_of(record: Mapping[str, Any], facet: str) -> str:
    return str(record.get(facet) or "")


PAGE: Final = Page("audit", "/audit", "audit", view)
