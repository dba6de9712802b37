"""The view of the rules at the controllers as they are now: each can be changed or removed."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from eruca.contract.access import NAME_SIZE_MAX
from eruca.contract.errors import ValidationError
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.policy_entries import KINDS, Entry, entries_of, of_holder
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

_PATH: Final = "/rules/now"
_CHANGE_PATH: Final = "/rules/change"


async def view(visit: Visit) -> Shown:
    """Return the entries of the policy, of one principal or of all.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    state = ListState.of(_PATH, visit.query, columns=("kind", "text"), others=("holder",))
    holder = state.others.get("holder", "").strip()
    if len(holder) > NAME_SIZE_MAX:
        raise ValidationError(
            f"query.holder: expected at most {NAME_SIZE_MAX} characters, found {len(holder)}"
        )
    policy = await outcome(visit.reading.policy())
    if visit.wants_file:
        policy.check()
    entries: list[Entry] = []
    version = ""
    if policy.value is not None:
        document, version = policy.value.policy, policy.value.version
        entries = of_holder(document, holder) if holder else entries_of(document)
    shown = listed(
        entries,
        state,
        name_of=lambda one: f"{one.kind} {one.place} {one.text}",
        key_of={"kind": lambda one: KINDS.index(one.kind), "text": lambda one: one.text},
        is_whole=visit.wants_file,
    )

    def change_url(one: Entry, **more: str) -> str:
        named = {"kind": one.kind, "entry": one.place, "version": version, **more}
        return f"{_CHANGE_PATH}?{urlencode(named)}"

    values: dict[str, Any] = {
        "path": _PATH,
        "policy": policy,
        "holder": holder,
        "list": shown,
        "state": shown.state,
        "rows": [(one, change_url(one), change_url(one, remove="yes")) for one in shown.rows],
        "new": [(kind, f"{_CHANGE_PATH}?{urlencode({'kind': kind})}") for kind in KINDS],
    }
    table = CsvTable(
        "rules", ("kind", "place", "text"), [(one.kind, one.place, one.text) for one in shown.rows]
    )
    recipe = recipes.Recipe("", "", recipes.cli("auth", "show"))
    return Shown(N_("Rules now"), values, recipe, table)


PAGE: Final = Page(
    "rules_now",
    _PATH,
    "access",
    view,
    parents=((N_("Access"), "/access"), (N_("Rules"), "/rules")),
    is_live=False,
)
