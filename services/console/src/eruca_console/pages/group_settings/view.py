"""The settings of a group that somebody wants: what would change, and the act that changes them.

To pause a group is a setting, too: its members lock no queue, and its messages wait. A group that
no broker knows is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eruca import AsyncClient
from eruca.contract.errors import ValidationError
from eruca.contract.groups import GroupSettings
from eruca.core.checked_names import check_own_group
from eruca.services.cluster import checked_request
from eruca_console.core import recipes
from eruca_console.core.setting_changes import Change, Settings
from eruca_console.core.texts import N_
from eruca_console.core.times import typed_time
from eruca_console.shell.setting_forms import NO, YES, Held, SettingForm, flag, number

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


@dataclass(frozen=True, slots=True)
class Wish:
    """The settings that somebody wants.

    Attributes:
        name: The group; empty: the form has none yet.
        given: The fields of the form as they were typed.
        settings: The same for a broker; only the named ones change.
        broker: The only broker to change; empty: all.
    """

    name: str
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
        name = fields.get("group", "").strip()
        if name:
            check_own_group(name)
        with checked_request():
            settings = GroupSettings.model_validate(
                {key: value for key, value in named.items() if value is not None}
            )
        return cls(name, given, settings, fields.get("broker", "").strip())

    @property
    def named(self) -> Settings:
        """The settings that change."""
        return {name: getattr(self.settings, name) for name in self.settings.model_fields_set}

    @property
    def whole(self) -> Settings:
        """All settings that a broker would hold that does not know the group yet."""
        return {name: getattr(self.settings, name) for name in SETTINGS}

    def refusals(self, changes: Sequence[Change], held: Held) -> dict[str, ValidationError]:
        """Return nothing: brokers take any valid settings of a group."""
        return {}

    async def put(self, client: AsyncClient, broker_name: str) -> object:
        """Change the broker of this name."""
        return await client.admin.groups.create(self.name, broker_name=broker_name, **self.named)

    def recipe(self, namesrv_urls: str) -> recipes.Recipe:
        """Return how to do it without the console."""
        group = self.name or "GROUP"
        named = {**self.named, **({"broker_name": self.broker} if self.broker else {})}
        lines = []
        if self.given["start"] == "time":
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
        has_command = not self.broker and "broadcast_enabled" not in named
        return recipes.Recipe(
            "",
            recipes.python(namesrv_urls, *lines, f"client.admin.groups.create({group!r}{words})"),
            recipes.cli("group", "create", group, *options) if has_command else "",
        )


def _takes_away(setting: str, before: Any, after: Any) -> bool:  # noqa: ANN401 - of any kind
    if setting == "retries_max":
        return bool(after < before)
    if setting in ("consume_enabled", "broadcast_enabled"):
        return bool(before and not after)
    return setting in ("ordered", "subscription_mode")


FORM: Final = SettingForm(
    "group",
    (N_("Groups"), "/groups"),
    (N_("Create a group"), N_("Change a group")),
    FIELDS,
    TEXTS,
    CHOICES,
    Wish.of,
    lambda reading, name: reading.group(name),
    lambda one: {name: getattr(one, name) for name in SETTINGS},
    _takes_away,
)
PAGE: Final = FORM.page
