"""The history of a run: what each client asked, and what it was answered, as JSON lines.

A **process** is one client, which has at most one request under way. Its events alternate::

    invoke      the request is about to be sent
    ok          it was done, as the answer says
    fail        it was refused: nothing of it was done, and nothing will be
    info        nobody knows: no answer, or one that says so. It may take effect much later

An invocation at the end of the history without an answer is an ``info``. A **note** is an event of
its own, an ``info`` without invocation: a fault that begins or heals, the settings of the run.

Times are seconds since the start of the run, on the clock of the process that records. All clients
run in one process, so their times can be compared.

Source: Jepsen's histories.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeVar

Kind = Literal["invoke", "ok", "fail", "info"]
Outcome = Literal["ok", "fail", "info"]
Value = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the history."""

    kind: Kind
    process: str
    at: float
    op: str
    value: Value

    def to_line(self) -> str:
        """Return the event as one line of JSON."""
        return json.dumps(
            {
                "kind": self.kind,
                "process": self.process,
                "at": round(self.at, 6),
                "op": self.op,
                "value": self.value,
            },
            separators=(",", ":"),
        )

    @classmethod
    def of_line(cls, line: str) -> Self:
        """Return the event that *line* is."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and its end.

    Attributes:
        process: The client.
        op: The request's name.
        begun_at: When it was about to be sent.
        ended_at: When its answer was known; infinity if it never was.
        outcome: As in the module's table.
        asked: The request.
        told: The answer; empty without one.
    """

    process: str
    op: str
    begun_at: float
    ended_at: float
    outcome: Outcome
    asked: Value
    told: Value

    @property
    def is_ok(self) -> bool:
        """True if it was done."""
        return self.outcome == "ok"


class UnmatchedEventError(ValueError):
    """Events of a process that do not alternate."""


@dataclass(frozen=True)
class History:
    """A whole run.

    Attributes:
        operations: In the order of their beginnings.
        notes: Events without invocation, in order.
    """

    operations: tuple[Operation, ...]
    notes: tuple[Event, ...] = ()
    _derived: dict[object, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return the history that *events* are, in their order.

        Raises:
            UnmatchedEventError: A process ends what it did not begin, or begins two requests.
        """
        open_events: dict[str, Event] = {}
        operations: list[Operation] = []
        notes: list[Event] = []
        for event in events:
            begun = open_events.pop(event.process, None)
            if event.kind == "invoke":
                if begun is not None:
                    raise UnmatchedEventError(f"{event.process} began {event.op} twice: {event}")
                open_events[event.process] = event
            elif begun is not None and begun.op == event.op:
                operations.append(_ended(begun, event.kind, event.at, event.value))
            elif begun is None and event.kind == "info":
                notes.append(event)
            else:
                raise UnmatchedEventError(f"expected an invocation before {event}, found {begun}")
        operations += [_ended(begun, "info", float("inf"), {}) for begun in open_events.values()]
        return cls(tuple(sorted(operations, key=lambda one: one.begun_at)), tuple(notes))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the history in a file."""
        with path.open() as lines:
            return cls.of(map(Event.of_line, lines))

    def named(self, *ops: str) -> tuple[Operation, ...]:
        """Return the operations with these names, in the order of their beginnings."""
        if ops not in self._derived:
            self._derived[ops] = tuple(one for one in self.operations if one.op in ops)
        named: tuple[Operation, ...] = self._derived[ops]
        return named

    def derived(self, compute: Callable[[History], T]) -> T:
        """Return what *compute* makes of this history; it is computed once."""
        if compute not in self._derived:
            self._derived[compute] = compute(self)
        result: T = self._derived[compute]
        return result

    def noted(self, op: str) -> Iterator[Event]:
        """Yield the notes of a name, in order."""
        return (note for note in self.notes if note.op == op)

    def setting(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON
        """Return a setting of the run, from its ``run`` note."""
        return next((note.value.get(name, default) for note in self.noted("run")), default)


def _ended(begun: Event, outcome: Outcome, at: float, told: Value) -> Operation:
    return Operation(begun.process, begun.op, begun.at, at, outcome, begun.value, told)


class Recorder:
    """Writes a history line by line; a file that breaks off is still one."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", buffering=1)
        self._start = time.monotonic()
        self.events: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return time.monotonic() - self._start

    def record(self, kind: Kind, process: str, op: str, value: Value) -> None:
        """Add an event, as of now."""
        event = Event(kind, process, self.now(), op, value)
        self.events.append(event)
        self._file.write(event.to_line() + "\n")

    def record_at(self, begun_at: float, process: str, op: str, asked: Value, told: Value) -> None:
        """Add a request that was begun at some time and is done now."""
        for kind, at, value in (("invoke", begun_at, asked), ("ok", self.now(), told)):
            event = Event(kind, process, at, op, value)  # type: ignore[arg-type]
            self.events.append(event)
            self._file.write(event.to_line() + "\n")

    def note(self, op: str, value: Value) -> None:
        """Add a note: an event that is no client's request."""
        self.record("info", f"note:{op}", op, value)

    def history(self) -> History:
        """Return the history up to now."""
        return History.of(self.events)
