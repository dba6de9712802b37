"""The table of checks: the comparison, its result, and the first differences if it failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

_DIFFERENCES_SHOWN: Final = 5


class SectionFailedError(Exception):
    """A section did not run to its end."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table."""

    scenario: str
    what: str
    agrees: bool
    detail: str


@dataclass(slots=True)
class Checks:
    """The checks so far; each is printed at once."""

    rows: list[Check] = field(default_factory=list)
    scenario: str = ""

    @property
    def all_agree(self) -> bool:
        """True if there was a check, and none failed."""
        return bool(self.rows) and all(row.agrees for row in self.rows)

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Group the checks inside under *title*; an exception becomes a failed check.

        Raises:
            SectionFailedError: The run failed; steps that depend on this section cannot continue.
        """
        self.scenario = title
        started = time.monotonic()
        print(f"\n{title}", flush=True)
        try:
            yield
        except Exception as failure:
            self.record("runs to its end", agrees=False, detail=f"{failure}")
            raise SectionFailedError(title) from failure
        print(f"  ({time.monotonic() - started:.0f} s)", flush=True)

    def record(self, what: str, *, agrees: bool, detail: str = "") -> None:
        """Add a line."""
        self.rows.append(Check(self.scenario, what, agrees, detail))
        mark = "ok  " if agrees else "FAIL"
        print(f"  {mark} {what}{': ' + detail if detail else ''}", flush=True)

    def equal(self, what: str, found: object, expected: object) -> None:
        """Check that a value equals another."""
        agrees = found == expected
        detail = f"{expected}" if agrees else f"expected {expected!r}, found {found!r}"
        self.record(what, agrees=agrees, detail=detail)

    def same_entries(
        self, what: str, found: Mapping[Any, Any], expected: Mapping[Any, Any]
    ) -> None:
        """Check that two tables have the same keys and the same value under each."""
        missing = expected.keys() - found.keys()
        surplus = found.keys() - expected.keys()
        differing = {key for key in expected.keys() & found.keys() if found[key] != expected[key]}
        lines = [
            *(f"missing {key}" for key in _first(missing)),
            *(f"surplus {key}" for key in _first(surplus)),
            *(f"{key}: {difference(found[key], expected[key])}" for key in _first(differing)),
        ]
        if lines:
            counts = f"{len(missing)} missing, {len(surplus)} surplus, {len(differing)} differ"
            self.record(what, agrees=False, detail="; ".join([counts, *lines]))
        else:
            self.record(what, agrees=True, detail=f"{len(expected)}")

    def summary(self) -> None:
        """Print the outcome of the whole table."""
        failed = [row for row in self.rows if not row.agrees]
        print(f"\n{len(self.rows)} checks, {len(failed)} failed")
        for row in failed:
            print(f"  {row.scenario}: {row.what}: {row.detail}"[:400], file=sys.stderr)


def difference(found: object, expected: object) -> str:
    """Describe the fields in which two objects of one kind differ."""
    names = getattr(type(expected), "__slots__", ())
    parts = [
        f"{name}: expected {_short(getattr(expected, name))}, "
        f"found {_short(getattr(found, name, None))}"
        for name in names
        if getattr(found, name, None) != getattr(expected, name)
    ]
    return ", ".join(parts) or f"expected {_short(expected)}, found {_short(found)}"


def _first(keys: Collection[Any]) -> list[Any]:
    return sorted(keys)[:_DIFFERENCES_SHOWN]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:100]}… ({len(text)} characters)"
