"""The common part of the forms of settings: the brokers to change, and the outcome of each.

The URL says what is wanted, so a proposal can be sent to somebody who decides. The form that does
it repeats the same fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from eruca.contract.errors import ErucaError, UnauthenticatedError, ValidationError
from eruca_console.cluster.outcomes import Outcome
from eruca_console.cluster.questions import Gathered
from eruca_console.core.setting_changes import Change, Settings, needs_typing
from eruca_console.shell.forms import check_typed
from eruca_console.shell.pages import Fields, Visit

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


async def held_of(
    visit: Visit,
    answer: Outcome[Gathered[Mapping[str, T]]] | None,
    settings_of: Callable[[T], Settings],
) -> Held:
    """Return the settings that brokers hold, of a thing that need not exist yet.

    Args:
        visit: Of the caller.
        answer: The brokers' answer to the question for it; None: it has no name yet.
        settings_of: Returns the settings of one broker's part.

    Raises:
        ErucaError: The caller may not see them, or no broker answers.
    """
    brokers = [group.broker_name for group in (await visit.reading.brokers()).value]
    if answer is None:
        return Held(brokers, {}, {})
    if answer.is_missing:
        return Held(brokers, {}, await visit.reading.absent())
    answer.check()
    assert answer.value is not None
    settings = {name: settings_of(one) for name, one in answer.value.value.items()}
    return Held(brokers, settings, answer.value.silent, answer.at)


async def applied(
    visit: Visit,
    fields: Fields,
    name_typed: str,
    changes: Sequence[Change],
    put: Callable[[str], Awaitable[object]],
) -> dict[str, ErucaError | None]:
    """Change one broker after the other; return the error of each, or None if it has changed.

    One that fails hides nothing of the others. A broker whose answer is lost may have changed.

    Args:
        visit: Of the caller.
        fields: The form's.
        name_typed: The name to confirm by typing it, if the changes take something away.
        changes: What somebody has seen, and wants.
        put: Changes the broker of this name.

    Raises:
        ValidationError: The name was not typed; nothing was done.
    """
    if needs_typing(changes):
        check_typed(fields, name_typed)
    found: dict[str, ErucaError | None] = {}
    for name in sorted({change.broker_name for change in changes}):
        try:
            await put(name)
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
