"""Small histories by hand, for the tests of checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.history import Event, History, Operation, Outcome

QUEUE = ["broker-a", "orders", 0]
GROUP = "readers"


def op(
    name: str,
    asked: dict[str, Any],
    told: dict[str, Any] | None = None,
    *,
    at: float = 0.0,
    until: float | None = None,
    by: str = "p1",
    outcome: Outcome = "ok",
) -> Operation:
    """Return an operation that takes a tenth of a second, if nothing else is said."""
    end = at + 0.1 if until is None else until
    return Operation(by, name, at, end, outcome, asked, told or {})


def note(name: str, at: float = 0.0, **value: Any) -> Event:  # noqa: ANN401
    """Return a note."""
    return Event("info", f"note:{name}", at, name, value)


def history(steps: Sequence[Operation | Event]) -> History:
    """Return the history of some operations and notes."""
    operations = [one for one in steps if isinstance(one, Operation)]
    notes = [one for one in steps if isinstance(one, Event)]
    return History(tuple(sorted(operations, key=lambda one: one.begun_at)), tuple(notes))


def send(
    message: str,
    offset: int | None = None,
    *,
    at: float = 0.0,
    by: str = "p1",
    outcome: Outcome = "ok",
    queue: list[Any] = QUEUE,
    **asked: Any,  # noqa: ANN401
) -> Operation:
    """Return the send of a message, and the offset that it was told."""
    told = {"queue": queue, "offset": offset} if outcome == "ok" else {}
    return op(
        "send",
        {"queue": queue, "message": message, **asked},
        told,
        at=at,
        by=by,
        outcome=outcome,
    )


def pull(
    offset: int,
    *messages: tuple[int, str],
    at: float = 10.0,
    by: str = "c1",
    session: int = 0,
    following: int | None = None,
    queue: list[Any] = QUEUE,
) -> Operation:
    """Return a pull from *offset* on, and what it found; it leads behind the last message."""
    end = messages[-1][0] + 1 if messages else offset
    return op(
        "pull",
        {"queue": queue, "offset": offset, "session": session},
        {"messages": list(messages), "next": end if following is None else following},
        at=at,
        by=by,
    )


def final(
    *messages: tuple[int, str],
    replica: int = 1,
    least: int = 0,
    end: int | None = None,
    queue: list[Any] = QUEUE,
) -> Operation:
    """Return the final read of a queue at a replica."""
    told_end = (messages[-1][0] + 1 if messages else least) if end is None else end
    return op(
        "queue",
        {"queue": queue, "replica": replica},
        {"messages": list(messages), "min": least, "end": told_end},
        at=100.0,
        by="final",
    )
