"""The settings of a topic that somebody wants: what would change, and the act that changes them.

A topic that no broker has is created. Brokers are changed one after the other, and each has an
outcome of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eruca import AsyncClient
from eruca.contract.errors import ValidationError
from eruca.contract.topics import TopicSettings
from eruca.core.checked_names import check_topic
from eruca.services.cluster import checked_request
from eruca_console.core import recipes
from eruca_console.core.setting_changes import Change, Settings
from eruca_console.core.texts import N_
from eruca_console.shell.setting_forms import NO, YES, Held, SettingForm, flag, number

FIELDS: Final = ("write_queue_count", "read_queue_count", "permission", "ordered")
TEXTS: Final[Mapping[str, str]] = {
    "write_queue_count": N_("Queues to write"),
    "read_queue_count": N_("Queues to read"),
    "permission": N_("Permission"),
    "ordered": N_("Ordered"),
}
PERMISSIONS: Final[Mapping[str, str]] = {
    "rw": N_("read and write"),
    "r": N_("read only"),
    "w": N_("write only"),
    "none": N_("neither"),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """The settings that somebody wants.

    Attributes:
        name: The topic; empty: the form has none yet.
        given: The fields of the form as they were typed.
        settings: The same for a broker; only the named ones change.
        broker: The only broker to change; empty: all.
        is_forced: Whether queues are removed that groups have not read.
    """

    name: str
    given: Mapping[str, str]
    settings: TopicSettings
    broker: str
    is_forced: bool

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Wish:
        """Return the wish that the fields of the form say.

        Raises:
            ValidationError: One is invalid.
        """
        given = {name: fields.get(name, "").strip() for name in FIELDS}
        named = {
            "write_queue_count": number(given["write_queue_count"], "write_queue_count"),
            "read_queue_count": number(given["read_queue_count"], "read_queue_count"),
            "permission": given["permission"] or None,
            "ordered": flag(given["ordered"], "ordered"),
        }
        name = fields.get("topic", "").strip()
        if name:
            check_topic(name)
        with checked_request():
            settings = TopicSettings.model_validate(
                {key: value for key, value in named.items() if value is not None}
            )
        is_forced = flag(fields.get("force", ""), "force") is True
        return cls(name, given, settings, fields.get("broker", "").strip(), is_forced)

    @property
    def named(self) -> Settings:
        """The settings that change."""
        return {name: getattr(self.settings, name) for name in self.settings.model_fields_set}

    @property
    def whole(self) -> Settings:
        """All settings that a broker would hold that does not have the topic yet."""
        return self.settings.with_fitting_counts().model_dump(include={*FIELDS})

    def refusals(self, changes: Sequence[Change], held: Held) -> dict[str, ValidationError]:
        """Return the error with which brokers would refuse, by broker; the others are left out.

        A broker that has not said what it holds, or may refuse for what it has stored, is left out.
        """
        found: dict[str, ValidationError] = {}
        for name in {change.broker_name for change in changes}:
            if name in held.settings:
                named = self.settings.model_fields_set
                kept = {key: held.settings[name][key] for key in FIELDS if key not in named}
                whole = self.settings.model_copy(update=kept)
            elif name in held.unknown and not {*FIELDS[:2]} <= self.settings.model_fields_set:
                continue
            else:
                whole = self.settings.with_fitting_counts()
            try:
                whole.check_counts()
            except ValidationError as error:
                found[name] = error
        return found

    async def put(self, client: AsyncClient, broker_name: str) -> object:
        """Change the broker of this name."""
        changed = {broker_name: self.settings}
        return await client.admin.change_topic(self.name, changed, force=self.is_forced)

    def recipe(self, namesrv_urls: str) -> recipes.Recipe:
        """Return how to do it without the console."""
        topic = self.name or "TOPIC"
        named: dict[str, Any] = {**self.named}
        if self.broker:
            named["broker_name"] = self.broker
        if self.is_forced:
            named["force"] = True
        words = "".join(f", {name}={value!r}" for name, value in named.items())
        options = [f"--broker={self.broker}"] if self.broker else []
        if "write_queue_count" in named:
            options.append(f"--queue-count={named['write_queue_count']}")
        if "permission" in named:
            options.append(f"--permission={named['permission']}")
        if "ordered" in named:
            options.append("--ordered" if named["ordered"] else "--no-ordered")
        if self.is_forced:
            options.append("--force")
        return recipes.Recipe(
            "",
            recipes.python(namesrv_urls, f"client.admin.create_topic({topic!r}{words})"),
            recipes.cli("topic", "create", topic, *options),
        )


def _takes_away(setting: str, before: Any, after: Any) -> bool:  # noqa: ANN401 - of any kind
    if setting.endswith("_count"):
        return bool(after < before)
    if setting == "permission":
        return any(right in before and right not in after for right in "rw")
    return True  # keys move to other queues if the order begins or ends


FORM: Final = SettingForm(
    "topic",
    (N_("Topics"), "/topics"),
    (N_("Create a topic"), N_("Change a topic")),
    (*FIELDS, "force"),
    TEXTS,
    {"permission": PERMISSIONS, "ordered": {YES: N_("yes"), NO: N_("no")}},
    Wish.of,
    lambda reading, name: reading.topic(name),
    lambda one: one.model_dump(include={*FIELDS}),
    _takes_away,
)
PAGE: Final = FORM.page
