"""The view of what new settings of a group would change, and the act that changes them.

To pause a group is a setting, too: its members lock no queue, and its messages wait. A group that
no broker knows is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eruca.contract.errors import ValidationError
from eruca.contract.groups import GroupSettings
from eruca.core.checked_names import check_own_group
from eruca.services.cluster import checked_request
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.setting_changes import Change, changes_of, needs_typing, same_everywhere
from eruca_console.core.texts import N_
from eruca_console.core.times import typed_time
from eruca_console.shell.forms import text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit
from eruca_console.shell.setting_forms import NO, YES, Held, applied, flag, held_of, number

FLAGS: Final = ("ordered", "consume_enabled", "broadcast_enabled")
FIELDS: Final = ("start", "start_at", "retries_max", "subscription_mode", *FLAGS)
SETTINGS: Final = ("start", "retries_max", "subscription_mode", *FLAGS)
TEXTS: Final[Mapping[str, str]] = {
    "start": N_("Start in a new topic"),
    "retries_max": N_("Retries before a dead letter"),
    "subscription_mode": N_("Subscriptions"),
    "ordered": N_("Ordered"),
    "consume_enabled": N_("Members receive messages"),
    "broadcast_enabled": N_("Members may broadcast"),
    "retry_policy": N_("Delays before retries"),
}
_YES_OR_NO: Final = {YES: N_("yes"), NO: N_("no")}
CHOICES: Final[Mapping[str, Mapping[str, str]]] = {
    "start": {
        "earliest": N_("the earliest message"),
        "latest": N_("the end"),
        "time": N_("a time"),
    },
    "subscription_mode": {
        "shared": N_("the same for all members"),
        "per_member": N_("each member its own"),
    },
    **dict.fromkeys(FLAGS, _YES_OR_NO),
}
_PATH: Final = "/group-settings"


@dataclass(frozen=True, slots=True)
class Wish:
    """The settings that somebody wants.

    Attributes:
        group: The group; empty: the form has none yet.
        given: The fields of the form as they were typed.
        settings: The same for a broker; only the named ones change.
        broker: The only broker to change; empty: all.
    """

    group: str
    given: Mapping[str, str]
    settings: GroupSettings
    broker: str

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Wish:
        """Return the wish that the fields of the form say.

        Raises:
            ValidationError: One is invalid.
        """
        given = {name: fields.get(name, "").strip() for name in FIELDS}
        start: object = given["start"] or None
        if start == "time":
            start = typed_time(given["start_at"], "start_at")
            if start is None:
                raise ValidationError(
                    "start_at: expected a time, found nothing", fix="give a time in UTC"
                )
        named: dict[str, object] = {
            "start": start,
            "retries_max": number(given["retries_max"], "retries_max"),
            "subscription_mode": given["subscription_mode"] or None,
            **{name: flag(given[name], name) for name in FLAGS},
        }
        group = fields.get("group", "").strip()
        if group:
            check_own_group(group)
        with checked_request():
            settings = GroupSettings.model_validate(
                {name: value for name, value in named.items() if value is not None}
            )
        return cls(group, given, settings, fields.get("broker", "").strip())

    @property
    def named(self) -> dict[str, Any]:
        """The settings that change, by name."""
        return {name: getattr(self.settings, name) for name in self.settings.model_fields_set}

    def changes(self, held: Held) -> list[Change]:
        """Return what would change."""
        new = {name: getattr(self.settings, name) for name in SETTINGS}
        wanted = {
            name: self.named if name in held.settings or name in held.unknown else new
            for name in held.chosen(self.broker)
        }
        return changes_of(wanted, held.settings, held.unknown, takes_away=_takes_away)


async def view(visit: Visit) -> Shown:
    """Return the form and, if it says something, what would change.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    check_parameters(visit.query, ("group", *FIELDS, "broker", "step"))
    wish = Wish.of(visit.query)
    held = await _held(visit, wish.group)
    is_asked = visit.query.get("step") == "preview" and bool(wish.group)
    changes = wish.changes(held) if is_asked else []
    values: dict[str, Any] = {
        **_frame(wish, held),
        "step": "preview" if is_asked else "form",
        "changes": changes,
        "needs_typing": needs_typing(changes),
        "now_held": {name: same_everywhere(held.settings.values(), name) for name in SETTINGS},
    }
    return Shown(_title(held), values, _recipe(visit, wish))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Change the settings, and show the outcome at each broker.

    Raises:
        ValidationError: A field is missing or invalid; nothing was done.
    """
    wish = Wish.of({name: text_of(fields, name) for name in ("group", *FIELDS, "broker")})
    if not wish.group:
        raise ValidationError("group: expected a name, found nothing", fix="give a group's name")
    held = await _held(visit, wish.group)
    changes = wish.changes(held)
    groups = visit.reading.client.admin.groups

    async def put(name: str) -> object:
        return await groups.create(wish.group, broker_name=name, **wish.named)

    outcomes = await applied(visit, fields, wish.group, changes, put)
    values: dict[str, Any] = {
        **_frame(wish, held),
        "step": "done",
        "changes": changes,
        "outcomes": outcomes,
    }
    return Shown(_title(held), values, _recipe(visit, wish))


async def _held(visit: Visit, group: str) -> Held:
    return await held_of(
        visit,
        await outcome(visit.reading.group(group)) if group else None,
        lambda one: {name: getattr(one, name) for name in SETTINGS},
    )


def _takes_away(setting: str, before: Any, after: Any) -> bool:  # noqa: ANN401 - of any kind
    if setting == "retries_max":
        return bool(after < before)
    if setting in ("consume_enabled", "broadcast_enabled"):
        return bool(before and not after)
    return setting in ("ordered", "subscription_mode")


def _title(held: Held) -> str:
    return N_("Create a group") if held.is_new else N_("Change a group")


def _frame(wish: Wish, held: Held) -> dict[str, Any]:
    return {
        "wish": wish,
        "held": held,
        "path": _PATH,
        "texts": TEXTS,
        "choices": CHOICES,
        "fields": {**wish.given, "broker": wish.broker},
    }


def _recipe(visit: Visit, wish: Wish) -> recipes.Recipe:
    group = wish.group or "GROUP"
    named = {**wish.named, **({"broker_name": wish.broker} if wish.broker else {})}
    lines = []
    if wish.given["start"] == "time":
        lines = ["from datetime import datetime"]
    shown = {
        name: f"datetime.fromisoformat({value.isoformat()!r})"
        if name == "start" and lines
        else repr(value)
        for name, value in named.items()
    }
    words = "".join(f", {name}={value}" for name, value in shown.items())
    options: list[str] = []
    if "start" in named:
        start = named["start"]
        options.append(f"--start={start if isinstance(start, str) else start.isoformat()}")
    if "retries_max" in named:
        options.append(f"--retries-max={named['retries_max']}")
    if "ordered" in named:
        options.append("--ordered" if named["ordered"] else "--no-ordered")
    if "consume_enabled" in named:
        options.append("--enabled" if named["consume_enabled"] else "--disabled")
    if "subscription_mode" in named:
        options.append(f"--subscription-mode={named['subscription_mode']}")
    has_command = not wish.broker and "broadcast_enabled" not in named
    return recipes.Recipe(
        "",
        recipes.python(visit.namesrv_urls, *lines, f"client.admin.groups.create({group!r}{words})"),
        recipes.cli("group", "create", group, *options) if has_command else "",
    )


PAGE: Final = Page(
    "group_settings",
    _PATH,
    "groups",
    view,
    parents=((N_("Groups"), "/groups"),),
    act=act,
    is_live=False,
)
