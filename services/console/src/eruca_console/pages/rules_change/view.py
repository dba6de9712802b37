"""The view of what a change of the rules would do, and the act that makes it.

The controllers say what changes and for whom, by the same comparison as the history has. They
refuse a change that takes its author's own right. The act names the version that the page has
shown, so a change that somebody else makes meanwhile is never overwritten.
"""

from __future__ import annotations

from typing import Any, Final

from eruca.contract.errors import ConflictError, ValidationError
from eruca.contract.limits import REASON_SIZE_MAX
from eruca.contract.policies import PolicyDifferences, PolicyView
from eruca.core.access.differences import losers
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.policy_changes import Effect, effects_of
from eruca_console.core.policy_entries import RIGHTS, EntryFaultsError, fields_of
from eruca_console.core.texts import N_
from eruca_console.pages.rules_change.wish import NAMES, PARAMETERS, Wish
from eruca_console.shell.forms import check_typed, text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit

TYPED_ABOVE: Final = 10  # effects; also if somebody loses something
_PATH: Final = "/rules/change"
TITLES: Final = {
    "rule": (N_("New rule"), N_("Change a rule"), N_("Remove a rule")),
    "role": (N_("New role"), N_("Change a role"), N_("Remove a role")),
    "quota": (N_("New quota"), N_("Change a quota"), N_("Remove a quota")),
    "namespace": (N_("New namespace"), N_("Change a namespace"), N_("Remove a namespace")),
}


async def view(visit: Visit) -> Shown:
    """Return the form and, once it is filled, what the change would do and for whom.

    Raises:
        ValidationError: A parameter is unknown or fits no change.
        ConflictError: The entry is one of a version that is no longer the current one.
    """
    check_parameters(visit.query, (*PARAMETERS, "step"))
    wish = Wish.of(visit.query)
    policy = await outcome(visit.reading.policy())
    values: dict[str, Any] = {**_frame(wish), "policy": policy, "step": "form"}
    if policy.value is None:
        return Shown(_title(wish), values, _recipe(wish))
    if wish.version:
        _check_version(wish, policy.value)
    is_asked = visit.query.get("step") == "preview" or wish.removes or wish.restored is not None
    if not is_asked and wish.place:
        values["fields"] = fields_of(policy.value.policy, wish.kind, wish.place)
    if is_asked:
        try:
            document = await wish.proposed(visit.reading, policy.value.policy)
        except EntryFaultsError as error:
            values["faults"] = {**values["faults"], **error.faults}
        else:
            preview = await outcome(visit.reading.policy_preview(document))
            values |= {"step": "preview", "preview": preview}
            values["is_same"] = document == policy.value.policy
            if preview.value is not None:
                values |= _shown_effects(preview.value.differences)
    return Shown(_title(wish), values, _recipe(wish))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Make the change, and show its version.

    Raises:
        ConflictError: There is another version by now, or the caller would lock himself out.
        ValidationError: A field is missing or invalid; nothing was done.
    """
    wish = Wish.of({name: text_of(fields, name) for name in PARAMETERS})
    reason = text_of(fields, "reason")
    if not 1 <= len(reason) <= REASON_SIZE_MAX or not reason.isprintable():
        raise ValidationError(
            f"reason: expected 1 to {REASON_SIZE_MAX} printable characters; nothing was done"
        )
    seen = await visit.reading.policy_seen(wish.version)
    try:
        document = await wish.proposed(visit.reading, seen.policy)
    except EntryFaultsError as error:
        raise ValidationError(f"{error}; nothing was done", fix="go back, and correct it") from None
    preview = (await visit.reading.policy_preview(document)).value
    if word := _word(preview.differences):
        check_typed(fields, word)
    made = await visit.reading.put_policy(seen.version, document, reason)
    values: dict[str, Any] = {
        **_frame(wish),
        "step": "done",
        "made": made,
        **_shown_effects(preview.differences),
    }
    return Shown(_title(wish), values, _recipe(wish))


def _check_version(wish: Wish, policy: PolicyView) -> None:
    if wish.version != policy.version:
        raise ConflictError(
            f"the rules have changed: expected version {wish.version[:64]}, found {policy.version}",
            fix="choose the rule again in the list of now",
        )


def _title(wish: Wish) -> str:
    if wish.restored is not None:
        return N_("Go back to an earlier version")
    new, changed, removed = TITLES[wish.kind]
    return removed if wish.removes else changed if wish.place else new


def _frame(wish: Wish) -> dict[str, Any]:
    return {
        "path": _PATH,
        "wish": wish,
        "fields": wish.fields,
        "faults": dict.fromkeys((*NAMES, "rights"), ""),
        "rights": RIGHTS,
        "reason_max": REASON_SIZE_MAX,
        "made": None,
        "preview": None,
        "is_same": False,
    }


def _shown_effects(differences: PolicyDifferences) -> dict[str, Any]:
    effects: list[Effect] = effects_of(differences)
    return {
        "effects": effects,
        "left_out": differences.right_count - len(differences.rights),
        "losers": losers(differences),
        "word": _word(differences),
    }


def _word(differences: PolicyDifferences) -> str:
    """Return the number of effects if it must be typed: many, or somebody loses something."""
    count = len(effects_of(differences)) + differences.right_count - len(differences.rights)
    return str(count) if count > TYPED_ABOVE or losers(differences) else ""


def _recipe(wish: Wish) -> recipes.Recipe:
    if wish.restored is not None:
        return recipes.Recipe("", "", recipes.cli("auth", "restore", str(wish.restored)))
    return recipes.Recipe("", "", recipes.cli("auth", "apply", "rules.toml"))


PAGE: Final = Page(
    "rules_change",
    _PATH,
    "access",
    view,
    parents=((N_("Access"), "/access"), (N_("Rules now"), "/rules/now")),
    act=act,
    is_live=False,
)
