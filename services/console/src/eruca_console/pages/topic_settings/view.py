"""The view of what new settings of a topic would change, and the act that changes them.

A topic that no broker has is created. Brokers are changed one after the other, and each has an
outcome of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eruca.contract.errors import ValidationError
from eruca.contract.topics import TopicSettings
from eruca.core.checked_names import check_topic
from eruca.services.cluster import checked_request
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.setting_changes import Change, changes_of, needs_typing, same_everywhere
from eruca_console.core.texts import N_
from eruca_console.shell.forms import text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit
from eruca_console.shell.setting_forms import NO, YES, Held, applied, flag, held_of, number

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
_PATH: Final = "/topic-settings"


@dataclass(frozen=True, slots=True)
class Wish:
    """The settings that somebody wants.

    Attributes:
        topic: The topic; empty: the form has none yet.
        given: The fields of the form as they were typed.
        settings: The same for a broker; only the named ones change.
        broker: The only broker to change; empty: all.
        is_forced: Whether queues are removed that groups have not read.
    """

    topic: str
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
        topic = fields.get("topic", "").strip()
        if topic:
            check_topic(topic)
        with checked_request():
            settings = TopicSettings.model_validate(
                {name: value for name, value in named.items() if value is not None}
            )
        is_forced = flag(fields.get("force", ""), "force") is True
        return cls(topic, given, settings, fields.get("broker", "").strip(), is_forced)

    def changes(self, held: Held) -> list[Change]:
        """Return what would change."""
        new = self.settings.with_fitting_counts().model_dump(include={*FIELDS})
        some = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        names = held.chosen(self.broker)
        wanted = {
            name: some if name in held.settings or name in held.unknown else new for name in names
        }
        return changes_of(wanted, held.settings, held.unknown, takes_away=_takes_away)

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


async def view(visit: Visit) -> Shown:
    """Return the form and, if it says something, what would change.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    check_parameters(visit.query, ("topic", *FIELDS, "broker", "force", "step"))
    wish = Wish.of(visit.query)
    held = await _held(visit, wish.topic)
    is_asked = visit.query.get("step") == "preview" and bool(wish.topic)
    changes = wish.changes(held) if is_asked else []
    values: dict[str, Any] = {
        **_frame(wish, held),
        "step": "preview" if is_asked else "form",
        "changes": changes,
        "refusals": wish.refusals(changes, held),
        "needs_typing": needs_typing(changes),
        "removes_queues": _removes_queues(changes),
        "now_held": {name: same_everywhere(held.settings.values(), name) for name in FIELDS},
    }
    return Shown(_title(held), values, _recipe(visit, wish))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Change the settings, and show the outcome at each broker.

    Raises:
        ValidationError: A field is missing or invalid; nothing was done.
    """
    wish = Wish.of({name: text_of(fields, name) for name in ("topic", *FIELDS, "broker", "force")})
    if not wish.topic:
        raise ValidationError("topic: expected a name, found nothing", fix="give a topic's name")
    held = await _held(visit, wish.topic)
    changes = wish.changes(held)
    admin = visit.reading.client.admin

    async def put(name: str) -> object:
        return await admin.change_topic(wish.topic, {name: wish.settings}, force=wish.is_forced)

    outcomes = await applied(visit, fields, wish.topic, changes, put)
    values: dict[str, Any] = {
        **_frame(wish, held),
        "step": "done",
        "changes": changes,
        "refusals": {},
        "outcomes": outcomes,
    }
    return Shown(_title(held), values, _recipe(visit, wish))


async def _held(visit: Visit, topic: str) -> Held:
    return await held_of(
        visit,
        await outcome(visit.reading.topic(topic)) if topic else None,
        lambda one: one.model_dump(include={*FIELDS}),
    )


def _takes_away(setting: str, before: Any, after: Any) -> bool:  # noqa: ANN401 - of any kind
    if setting.endswith("_count"):
        return bool(after < before)
    if setting == "permission":
        return any(right in before and right not in after for right in "rw")
    return True  # keys move to other queues if the order begins or ends


def _removes_queues(changes: Sequence[Change]) -> bool:
    return any(
        change.setting == "read_queue_count" and (change.takes_away or not change.is_known)
        for change in changes
    )


def _title(held: Held) -> str:
    return N_("Create a topic") if held.is_new else N_("Change a topic")


def _frame(wish: Wish, held: Held) -> dict[str, Any]:
    return {
        "wish": wish,
        "held": held,
        "path": _PATH,
        "texts": TEXTS,
        "choices": {"permission": PERMISSIONS, "ordered": {YES: N_("yes"), NO: N_("no")}},
        "fields": {**wish.given, "broker": wish.broker},
    }


def _recipe(visit: Visit, wish: Wish) -> recipes.Recipe:
    topic = wish.topic or "TOPIC"
    named = {name: getattr(wish.settings, name) for name in wish.settings.model_fields_set}
    if wish.broker:
        named["broker_name"] = wish.broker
    if wish.is_forced:
        named["force"] = True
    words = "".join(f", {name}={value!r}" for name, value in named.items())
    options = [f"--broker={wish.broker}"] if wish.broker else []
    if "write_queue_count" in named:
        options.append(f"--queue-count={named['write_queue_count']}")
    if "permission" in named:
        options.append(f"--permission={named['permission']}")
    if "ordered" in named:
        options.append("--ordered" if named["ordered"] else "--no-ordered")
    if wish.is_forced:
        options.append("--force")
    return recipes.Recipe(
        "",
        recipes.python(visit.namesrv_urls, f"client.admin.create_topic({topic!r}{words})"),
        recipes.cli("topic", "create", topic, *options),
    )


PAGE: Final = Page(
    "topic_settings",
    _PATH,
    "topics",
    view,
    parents=((N_("Topics"), "/topics"),),
    act=act,
    is_live=False,
)
