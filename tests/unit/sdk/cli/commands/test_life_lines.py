"""A message's life as a table: what each row says, and that nothing in it breaks its line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.cli.commands.life_lines import detail_text, event_rows, group_row, heading, span_text
from eruca.contract.queries import (
    GroupProgress,
    LifeEvent,
    LifeEventKind,
    StoredMessage,
    Timeline,
)

BEGIN = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def event(kind: LifeEventKind, seconds: float, **detail: Any) -> LifeEvent:  # noqa: ANN401
    return LifeEvent(
        at=BEGIN + timedelta(seconds=seconds),
        kind=kind,
        broker_name="broker-a",
        log_offset=17,
        topic="orders",
        queue_id=0,
        queue_offset=5,
        detail=detail,
    )


def test_each_event_tells_when_how_long_after_the_last_and_what() -> None:
    rows = event_rows(
        [
            event(LifeEventKind.STORED, 0),
            event(LifeEventKind.SENT_BACK, 4.2, group="billing", attempt=1, error="no\nmoney"),
        ]
    )

    assert list(rows) == [
        ("2026-11-21T08:00:00.000Z", None, "stored", "orders/0@5", "broker-a", None),
        (
            "2026-11-21T08:00:04.200Z",
            "4.2s",
            "sent back",
            "orders/0@5",
            "broker-a",
            r"by billing, attempt 1, no\nmoney",
        ),
    ]


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ({}, ""),
        ({"producer_group": "shop", "topic": "orders", "queue_id": 2}, "for shop, to orders/2"),
        ({"number": 1, "checker": "txn-checker-1"}, "check 1, by txn-checker-1"),
        (
            {"outcome": "commit", "by": "check", "checks": 2, "reason": "it is paid"},
            "commit, after 2 checks, by check, it is paid",
        ),
        ({"outcome": "commit", "was_parked": True}, "commit, was parked"),
        ({"group": "g", "is_dead": True}, "by g, no more retries"),
        (
            {
                "group": "g",
                "attempt": 3,
                "reason": "failed",
                "deliver_at": "2026-11-21T08:00:14.310000Z",
                "origin_topic": "orders",
                "origin_queue_id": 0,
                "origin_offset": 5,
            },
            "by g, attempt 3, failed, due at 2026-11-21T08:00:14.310Z, from orders/0@5",
        ),
        ({"group": "g", "delivery_mode": "new"}, "by g, delivery mode new"),
        ({"group": "g", "reason": None}, "by g"),
        ({"deliver_at": "soon"}, "due at soon"),
    ],
)
def test_details_are_told_in_words(detail: dict[str, Any], text: str) -> None:
    assert detail_text(detail) == text


@given(
    st.dictionaries(
        st.sampled_from(["group", "error", "origin_topic", "deliver_at", "is_dead", "other"]),
        st.none() | st.text() | st.integers() | st.booleans(),
    )
)
def test_whatever_a_detail_holds_it_stays_on_its_line(detail: dict[str, Any]) -> None:
    assert detail_text(detail).isprintable()


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0ms"),
        (timedelta(milliseconds=999), "999ms"),
        (timedelta(seconds=1), "1.0s"),
        (timedelta(seconds=59, milliseconds=990), "59.9s"),
        (timedelta(minutes=1), "1m"),
        (timedelta(minutes=61, seconds=5), "1h 1m"),
        (timedelta(days=2, hours=3, minutes=4), "2d 3h"),
        (timedelta(milliseconds=-12), "-12ms"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(span: timedelta, text: str) -> None:
    assert span_text(span) == text


def test_a_group_tells_why_it_is_not_known_where_it_stands() -> None:
    progress = GroupProgress(
        group="billing",
        broker_name="broker-a",
        topic="orders",
        queue_id=0,
        queue_offset=5,
        next_offset=None,
        state="in_delivery",
        since=None,
        detail="why\nso",
    )

    assert group_row(progress) == (
        "billing",
        "in delivery",
        None,
        "orders/0@5",
        None,
        r"why\nso",
    )


def test_the_heading_names_the_message() -> None:
    place = StoredMessage(
        message_id="ID",
        offset_message_id="OFFSET",
        broker_name="broker-a",
        log_offset=17,
        topic="orders",
        queue_id=0,
        queue_offset=5,
        tag="paid\x1b[31m",
        keys=["k1", "k2"],
        born_at=BEGIN,
        stored_at=BEGIN,
        size=99,
    )
    told = Timeline(
        message_id="ID", places=[place], events=[], groups=[], read_model=[], incomplete=[]
    )

    assert heading(told) == r"ID, tag paid\x1b[31m, keys k1 k2"
    nameless = place.model_copy(update={"message_id": None, "tag": None, "keys": []})
    assert heading(told.model_copy(update={"message_id": None, "places": [nameless]})) == "OFFSET"
    assert heading(told.model_copy(update={"places": []})) == "ID"
