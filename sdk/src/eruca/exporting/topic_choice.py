"""The topics that a source reads: named ones, or those whose names match a pattern. Pure.

A pattern is a regular expression of RE2, which pyarrow has. Most of Java's syntax is the same, and
no pattern can take long. In return there are neither look-arounds nor backreferences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from eruca.exporting.errors import OptionError

DERIVED_PREFIXES: Final = ("%RETRY%", "%DLQ%")  # of topics that brokers create for groups
_SHOWN_SIZE: Final = 120  # characters of an invalid pattern
_NAMED_MAX: Final = 8  # topics named in one error


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A pattern that a topic's whole name must match.

    The topics of retries and dead letters match only if the pattern begins with their prefix.

    Raises:
        OptionError: It is not a regular expression, or uses what RE2 does not have.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            _matches(["orders"], self.text)  # alone, because it could close the group around it
            _matches(["orders"], self._whole)
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise OptionError(
                f"option subscribePattern: expected a regular expression without look-arounds and"
                f" backreferences, found {self.text[:_SHOWN_SIZE]!r} ({reason[:_SHOWN_SIZE]})"
            ) from error

    @property
    def _whole(self) -> str:
        return rf"\A(?:{self.text})\z"

    def among(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return those of *topics* that match."""
        mine = self.candidates(topics)
        matches = _matches(mine, self._whole)
        return tuple(topic for topic, does in zip(mine, matches, strict=True) if does)

    def candidates(self, topics: Iterable[str]) -> list[str]:
        """Return *topics* without retries and dead letters, unless the pattern begins like them."""
        return [
            topic
            for topic in topics
            if not topic.startswith(DERIVED_PREFIXES)
            or any(topic.startswith(one) and self.text.startswith(one) for one in DERIVED_PREFIXES)
        ]


def _matches(topics: list[str], pattern: str) -> list[bool]:
    names = pa.array(topics, pa.string())
    found: list[bool] = pc.match_substring_regex(names, pattern).to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Named topics, or a pattern of their names."""

    names: tuple[str, ...] = ()
    pattern: TopicPattern | None = None  # if there is one, there are no names

    def __contains__(self, topic: object) -> bool:
        if self.pattern is None:
            return topic in self.names
        return isinstance(topic, str) and bool(self.pattern.among([topic]))

    @property
    def text(self) -> str:
        """The choice in texts: ``topics orders, payments``."""
        if self.pattern is None:
            return f"topics {', '.join(self.names)}"
        return f"subscribePattern {self.pattern.text!r}"

    def nothing_of(self, topics: Iterable[str]) -> OptionError:
        """Return the error that none of *topics* matches."""
        assert self.pattern is not None, "names are not compared with a list"
        ours = sorted(self.pattern.candidates(topics))
        more = ", …" if len(ours) > _NAMED_MAX else ""
        there = ", ".join(ours[:_NAMED_MAX]) + more or "none"
        return OptionError(
            "option subscribePattern: expected a pattern that matches the whole name of at least"
            f" one topic, found {self.pattern.text[:_SHOWN_SIZE]!r}; topics that may be read:"
            f" {there}"
        )
