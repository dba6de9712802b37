"""Times on the wire: of one length whatever the moment, so that they sort as texts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from eruca.contract.groups import GroupConfig
from eruca.contract.instant_texts import INSTANT_PATTERN, InstantText, instant_text
from eruca.contract.times import Instant
from eruca.contract.topics import OffsetByTime

INSTANT: TypeAdapter[datetime] = TypeAdapter(Instant)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 11, 22, 10, tzinfo=UTC), "2026-11-22T10:00:00.000Z"),
        (datetime(2026, 11, 22, 10, 0, 0, 1_999, tzinfo=UTC), "2026-11-22T10:00:00.001Z"),
        (
            datetime(2026, 11, 22, 10, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            "2026-11-22T04:30:00.000Z",
        ),
        (datetime.min.replace(tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_is_utc_to_the_millisecond(moment: datetime, text: str) -> None:
    assert instant_text(moment) == text
    assert INSTANT.dump_json(moment) == f'"{text}"'.encode()
    assert INSTANT.dump_python(moment) == moment


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_texts_sort_as_their_times(one: datetime, other: datetime) -> None:
    texts = instant_text(one), instant_text(other)

    assert all(re.fullmatch(INSTANT_PATTERN, text) for text in texts)
    assert (texts[0] <= texts[1]) >= (one <= other)
    assert INSTANT.validate_json(f'"{texts[0]}"') == one.replace(
        microsecond=one.microsecond // 1000 * 1000
    )


def test_answers_of_both_kinds_say_it_alike() -> None:
    moment = datetime(2026, 11, 22, 10, tzinfo=UTC)
    answer = OffsetByTime(topic="t", queue_id=0, timestamp=moment, boundary="lower", offset=7)

    assert '"timestamp":"2026-11-22T10:00:00.000Z"' in answer.model_dump_json()
    assert (
        OffsetByTime.model_json_schema(mode="serialization")["properties"]["timestamp"]["pattern"]
        == msgspec.json.schema(InstantText)["pattern"]
        == INSTANT_PATTERN
    )


def test_a_place_that_is_a_name_or_a_time_stays_either() -> None:
    start = TypeAdapter(GroupConfig.model_fields["start"].rebuild_annotation())

    assert start.dump_json("latest") == b'"latest"'
    assert start.dump_json(datetime(2026, 11, 22, 10, tzinfo=UTC)) == b'"2026-11-22T10:00:00.000Z"'
