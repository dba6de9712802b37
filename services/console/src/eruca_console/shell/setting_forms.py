"""The pages of settings: the form, a preview, a typed confirmation, and the outcome of each broker.

The URL says what is wanted, so a proposal can be sent to somebody who decides. The form that does
it repeats the same fields. A page declares its subject: a :class:`SettingForm`, and the
:class:`Wish` that it reads from its fields. ``templates/settings.html`` has the macros for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

from eruca import AsyncClient
from eruca.contract.errors import ErucaError, UnauthenticatedError, ValidationError
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.outcomes import outcome
from eruca_console.cluster.questions import Gathered
from eruca_console.cluster.reading import Reading
from eruca_console.core.listing import check_parameters
from eruca_console.core.recipes import Recipe
from eruca_console.core.setting_changes import (
    Change,
    Settings,
    changes_of,
    needs_typing,
    same_everywhere,
)
from eruca_console.shell.forms import check_typed, text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit

T = TypeVar("T")

YES: Final = "yes"
NO: Final = "no"


@dataclass(frozen=True, slots=True)
class Held:
    """Settings as brokers hold them.

    Attributes:
        brokers: The live brokers.
        settings: Those of each that has the thing.
        silent: Brokers that have not said what they hold, each with its error.
        at: When they said it; None: they were not asked, or have nothing.
    """

    brokers: Sequence[str]
    settings: Mapping[str, Settings]
    silent: Mapping[str, ErucaError]
    at: datetime | None = None

    @property
    def is_new(self) -> bool:
        """True if no broker has the thing; a broker that is silent may have it."""
        return not self.settings and not self.silent

    @property
    def unknown(self) -> list[str]:
        """The live brokers that have not said what they hold."""
        return [name for name in self.brokers if name in self.silent]

    @property
    def answered(self) -> list[str]:
        """The live brokers that have said what they hold, or that they hold nothing."""
        return [name for name in self.brokers if name not in self.silent]

    def chosen(self, broker_name: str) -> list[str]:
        """Return the brokers to change: all live ones, or the one that is named.

        Raises:
            ValidationError: It is not a live broker.
        """
        if not broker_name:
            return [*self.brokers]
        if broker_name not in self.brokers:
            raise ValidationError(
                f"broker: expected one of {', '.join(self.brokers)}, found {broker_name[:64]!r}",
                fix="choose a live broker",
            )
        return [broker_name]


class Wish(Protocol):
    """The settings that somebody wants, as the fields of a form say them."""

    @property
    def name(self) -> str:
        """The topic or group; empty: the form has none yet."""

    @property
    def broker(self) -> str:
        """The only broker to change; empty: all."""

    @property
    def given(self) -> Mapping[str, str]:
        """The fields as they were typed."""

    @property
    def named(self) -> Settings:
        """The settings that change."""

    @property
    def whole(self) -> Settings:
        """All settings that a broker would hold that does not have the thing yet."""

    def refusals(self, changes: Sequence[Change], held: Held) -> Mapping[str, ValidationError]:
        """Return the error with which brokers would refuse, by broker, as far as it is known."""

    async def put(self, client: AsyncClient, broker_name: str) -> object:
        """Change the broker of this name."""

    def recipe(self, namesrv_urls: str) -> Recipe:
        """Return how to do it without the console."""


W = TypeVar("W", bound=Wish)


@dataclass(frozen=True, slots=True)
class SettingForm(Generic[W, T]):
    """The page of the settings of topics, or of groups.

    Attributes:
        thing: Topic or group: the name of its field.
        parent: The title and the path of the list of all.
        titles: Of the page: to create one, to change one.
        fields: The other fields of the form, but for ``broker``.
        texts: The settings, each with its text.
        choices: The texts of values, by setting.
        wish_of: Reads the fields.
        ask: Asks the brokers for the thing of a name.
        settings_of: Returns the settings of one broker's answer.
        takes_away: Decides by setting, value before and value after.
    """

    thing: str
    parent: tuple[str, str]
    titles: tuple[str, str]
    fields: Sequence[str]
    texts: Mapping[str, str]
    choices: Mapping[str, Mapping[str, str]]
    wish_of: Callable[[Mapping[str, str]], W]
    ask: Callable[[Reading, str], Awaitable[Answered[Gathered[Mapping[str, T]]]]]
    settings_of: Callable[[T], Settings]
    takes_away: Callable[[str, Any, Any], bool]

    @property
    def path(self) -> str:
        """The path of the page."""
        return f"/{self.thing}-settings"

    @property
    def page(self) -> Page:
        """The page; its folder has the name of its path."""
        return Page(
            f"{self.thing}_settings",
            self.path,
            self.parent[1].strip("/"),
            self.view,
            parents=(self.parent,),
            act=self.act,
            is_live=False,
        )

    async def view(self, visit: Visit) -> Shown:
        """Return the form and, if it says something, what would change.

        Raises:
            ValidationError: A parameter is unknown or invalid.
        """
        check_parameters(visit.query, (self.thing, *self.fields, "broker", "step"))
        wish = self.wish_of(visit.query)
        held = await self._held(visit, wish.name)
        is_asked = visit.query.get("step") == "preview" and bool(wish.name)
        changes = self._changes(wish, held) if is_asked else []
        values: dict[str, Any] = {
            **self._frame(wish, held),
            "step": "preview" if is_asked else "form",
            "changes": changes,
            "refusals": wish.refusals(changes, held),
            "needs_typing": needs_typing(changes),
            "now_held": {
                name: same_everywhere(held.settings.values(), name) for name in wish.whole
            },
        }
        return self._shown(visit, wish, held, values)

    async def act(self, visit: Visit, fields: Fields) -> Shown:
        """Change the settings, and show the outcome at each broker.

        Raises:
            ValidationError: A field is missing or invalid; nothing was done.
        """
        names = (self.thing, *self.fields, "broker")
        wish = self.wish_of({name: text_of(fields, name) for name in names})
        if not wish.name:
            raise ValidationError(
                f"{self.thing}: expected a name, found nothing", fix=f"give a {self.thing}'s name"
            )
        held = await self._held(visit, wish.name)
        changes = self._changes(wish, held)
        if needs_typing(changes):
            check_typed(fields, wish.name)
        values: dict[str, Any] = {
            **self._frame(wish, held),
            "step": "done",
            "changes": changes,
            "refusals": {},
            "outcomes": await _applied(visit, wish, changes),
        }
        return self._shown(visit, wish, held, values)

    async def _held(self, visit: Visit, name: str) -> Held:
        """Return the settings that brokers hold, of a thing that need not exist yet.

        Raises:
            ErucaError: The caller may not see them, or no broker answers.
        """
        reading = visit.reading
        answer = await outcome(self.ask(reading, name)) if name else None
        brokers = [group.broker_name for group in (await reading.brokers()).value]
        if answer is None:
            return Held(brokers, {}, {})
        if answer.is_missing:
            return Held(brokers, {}, await reading.absent())
        answer.check()
        assert answer.value is not None
        settings = {one: self.settings_of(part) for one, part in answer.value.value.items()}
        return Held(brokers, settings, answer.value.silent, answer.at)

    def _changes(self, wish: W, held: Held) -> list[Change]:
        wanted = {
            name: wish.named if name in held.settings or name in held.unknown else wish.whole
            for name in held.chosen(wish.broker)
        }
        return changes_of(wanted, held.settings, held.unknown, takes_away=self.takes_away)

    def _frame(self, wish: W, held: Held) -> dict[str, Any]:
        return {
            "wish": wish,
            "held": held,
            "thing": self.thing,
            "path": self.path,
            "all_path": self.parent[1],
            "texts": self.texts,
            "choices": self.choices,
            "fields": {**wish.given, "broker": wish.broker},
        }

    def _shown(self, visit: Visit, wish: W, held: Held, values: Mapping[str, Any]) -> Shown:
        return Shown(
            self.titles[0] if held.is_new else self.titles[1],
            values,
            wish.recipe(visit.namesrv_urls),
        )


async def _applied(
    visit: Visit, wish: Wish, changes: Sequence[Change]
) -> dict[str, ErucaError | None]:
    """Change one broker after the other; return the error of each, or None if it has changed.

    One that fails hides nothing of the others. A broker whose answer is lost may have changed.
    """
    found: dict[str, ErucaError | None] = {}
    for name in sorted({change.broker_name for change in changes}):
        try:
            await wish.put(visit.reading.client, name)
        except UnauthenticatedError:
            raise
        except ErucaError as error:
            found[name] = error
        else:
            found[name] = None
    visit.reading.cache.clear()
    return found


def flag(text: str, name: str) -> bool | None:
    """Return what a choice of yes, no and unchanged says; None: unchanged.

    Raises:
        ValidationError: It says something else.
    """
    if text in (YES, NO, ""):
        return None if text == "" else text == YES
    raise ValidationError(f"{name}: expected yes, no or nothing, found {text[:20]!r}")


def number(text: str, name: str) -> int | None:
    """Return the number that a field has; None: it is empty.

    Raises:
        ValidationError: It is no number.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValidationError(f"{name}: expected a number, found {text[:20]!r}")
    return int(text)
