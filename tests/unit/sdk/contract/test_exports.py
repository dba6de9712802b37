"""Exports on the wire: ranges as text, and columns that promise what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.exports import EXPORT_COLUMNS, EXPORT_SCHEMA, ExportRange
from eruca.contract.limits import (
    EXPORT_PARTITION_ROWS_DEFAULT,
    EXPORT_RANGE_COUNT_MAX,
    EXPORT_ROWS_MAX,
    QUEUE_COUNT_MAX,
)


@given(
    broker_name=st.from_regex(r"[a-zA-Z0-9_.@-]{1,127}", fullmatch=True).filter(
        lambda name: name.strip(".")  # dots alone are another place in a URL's path
    ),
    queue_id=st.integers(0, 2**31 - 1),
    offsets=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
)
def test_a_range_is_read_as_it_was_written(
    broker_name: str, queue_id: int, offsets: tuple[int, int]
) -> None:
    wanted = ExportRange(
        broker_name=broker_name,
        queue_id=queue_id,
        from_offset=min(offsets),
        to_offset=max(offsets),
    )

    assert ExportRange.parse(wanted.text) == wanted
    assert wanted.rows == max(offsets) - min(offsets)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "broker-a",
        "broker-a/0",
        "broker-a/0:5",
        "broker-a/0:5-",
        "broker-a/0:-5-6",
        "broker-a/x:0-1",
        "/0:0-1",
        "broker a/0:0-1",
        "broker-a/0:0-1\n",
        "broker-a/0:0-1,broker-a/1:0-1",
        "broker-a/0:٣-٤",
        "broker-a/0:9-5",
        f"broker-a/{2**31}:0-1",
        f"broker-a/0:0-{2**63}",
        f"{'b' * 128}/0:0-1",
    ],
)
def test_anything_else_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ExportRange.parse(text)


def test_columns_have_names_of_their_own_and_say_what_they_mean() -> None:
    names = [column.name for column in EXPORT_COLUMNS]

    assert len(set(names)) == len(names)
    assert all(column.meaning.endswith(".") for column in EXPORT_COLUMNS)
    assert EXPORT_SCHEMA.columns == list(EXPORT_COLUMNS)


def test_a_partition_of_the_usual_size_can_be_asked_for_in_one_request() -> None:
    longest = ExportRange(
        broker_name="b" * 32, queue_id=QUEUE_COUNT_MAX, from_offset=10**15, to_offset=10**15
    )

    assert EXPORT_PARTITION_ROWS_DEFAULT <= EXPORT_ROWS_MAX
    assert EXPORT_RANGE_COUNT_MAX * len(f"&range={longest.text}") < 48 * 1024
