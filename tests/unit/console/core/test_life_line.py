"""The life line of a message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from eruca.contract.queries import LifeEvent, LifeEventKind
from eruca_console.core.life_line import life_line

FIRST: Final = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def event(kind: str, after_ms: int, group: str | None = None) -> LifeEvent:
    return LifeEvent(
        at=FIRST + timedelta(milliseconds=after_ms),
        kind=LifeEventKind(kind),
        broker_name="broker-a",
        log_offset=1,
        topic="orders",
        queue_id=0,
        queue_offset=0,
        detail={} if group is None else {"group": group},
    )


def test_a_message_without_events_has_no_line() -> None:
    assert life_line([]) == []


def test_an_event_lasts_until_the_next_one_of_its_group() -> None:
    spans = life_line(
        [
            event("stored", 0),
            event("leased", 100, "a"),
            event("leased", 200, "b"),
            event("nacked", 500, "a"),
            event("acked", 1000, "b"),
        ]
    )

    assert [(one.group, one.since_first_ms, one.lasts_ms) for one in spans] == [
        ("", 0, None),
        ("a", 100, 400),
        ("b", 200, 800),
        ("a", 500, None),
        ("b", 1000, None),
    ]
    assert [(one.begin, one.width) for one in spans] == [
        (0, 0),
        (10, 40),
        (20, 80),
        (50, 0),
        (100, 0),
    ]
    assert [one.is_trouble for one in spans] == [False, False, False, True, False]


def test_after_an_end_nothing_lasts() -> None:
    spans = life_line([event("dead_letter", 0, "a"), event("redriven", 50, "a")])

    assert [one.lasts_ms for one in spans] == [None, None]


def test_events_at_one_moment_and_clocks_that_differ_stay_on_the_scale() -> None:
    same = life_line([event("stored", 0), event("leased", 0, "a"), event("acked", 0, "a")])
    assert [(one.begin, one.width) for one in same] == [(0, 0)] * 3

    back = life_line([event("leased", 0, "a"), event("acked", -70, "a")])
    assert all(0 <= one.begin <= 100 and one.begin + one.width <= 100 for one in back)
