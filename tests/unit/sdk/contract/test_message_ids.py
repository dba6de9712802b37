"""Message ids: both kinds lead back to what they were made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.message_ids import (
    UndecodableIdError,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    encode_unique_id,
    month_start_ms,
)
from eruca.contract.records import Host
from support.records import HOSTS, INT64
from support.rocketmq_rules import unique_id_time_ms

ADDRESSES = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
NOW_MS = st.integers(0, 4_000_000_000_000)
ZONES = st.sampled_from(["UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York"])


@given(HOSTS, INT64)
def test_an_offset_id_leads_to_host_and_offset(host: Host, offset: int) -> None:
    text = encode_offset_id(host, offset)

    assert decode_offset_id(text) == decode_offset_id(text.lower()) == (host, offset)


def test_rocketmqs_own_example_of_an_offset_id() -> None:
    host = Host.parse("10.66.51.58", 10911)

    assert encode_offset_id(host, 0x134F1F5) == "0A42333A00002A9F000000000134F1F5"


@given(
    ADDRESSES,
    st.integers(0, 2**22),
    st.integers(-(2**31), 2**32),
    st.integers(0, 2**33),
    st.integers(-1, 2**17),
)
def test_a_unique_id_keeps_each_number_to_its_fields_width(
    address: bytes, process: int, instance: int, month_ms: int, counter: int
) -> None:
    decoded = decode_unique_id(encode_unique_id(address, process, instance, month_ms, counter))

    assert decoded == (
        address,
        process % 2**16,
        instance % 2**32,
        month_ms % 2**32,
        counter % 2**16,
    )


@pytest.mark.parametrize(
    "text", ["", "00", "0" * 31, "0" * 33, "0" * 34, "G" * 32, " " + "0" * 32, "0" * 55, "00 " * 16]
)
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(UndecodableIdError):
        decode_offset_id(text)
    with pytest.raises(UndecodableIdError):
        decode_unique_id(text)
    with pytest.raises(UndecodableIdError):
        unique_id_time_ms(text, 0)


@given(NOW_MS, ZONES)
def test_a_month_starts_at_midnight_of_its_first_day(now_ms: int, name: str) -> None:
    zone = ZoneInfo(name)

    start = datetime.fromtimestamp(month_start_ms(now_ms, zone) / 1000, zone)

    now = datetime.fromtimestamp(now_ms // 1000, zone)
    assert (start.year, start.month, start.day) == (now.year, now.month, 1)
    assert (start.hour, start.minute, start.second, start.microsecond) == (0, 0, 0, 0)


def test_a_month_starts_by_the_clock_of_its_season() -> None:
    """Berlin is an hour off its own summer time when the month is counted from January's."""
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime(2024, 7, 1, tzinfo=berlin)
    last = datetime(2024, 7, 31, 23, 59, 59, tzinfo=berlin)

    assert month_start_ms(int(last.timestamp() * 1000), berlin) == start.timestamp() * 1000


@given(NOW_MS, st.integers(1, 27 * 86_400_000), ZONES)
def test_the_time_of_a_unique_id_is_found_again(now_ms: int, age_ms: int, name: str) -> None:
    zone, made_ms = ZoneInfo(name), now_ms - age_ms
    span = made_ms - month_start_ms(made_ms, zone)

    found = unique_id_time_ms(encode_unique_id(bytes(4), 1, 2, span, 3), now_ms, zone)

    # An id does not hold its month: a span that would also fit into this month is taken for it.
    this_month = month_start_ms(now_ms, zone) + span
    assert found == (this_month if this_month < now_ms else made_ms)


def test_an_id_of_this_very_moment_counts_as_last_months() -> None:
    """RocketMQ's reading: an id is older than the moment it is looked at."""
    start = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1000)
    last_start = int(datetime(2024, 2, 1, tzinfo=UTC).timestamp() * 1000)
    text = encode_unique_id(bytes(4), 1, 2, 5, 3)

    assert unique_id_time_ms(text, start + 5) == last_start + 5
    assert unique_id_time_ms(text, start + 6) == start + 5


def test_an_id_from_the_end_of_last_month_is_not_from_the_future() -> None:
    now = datetime(2024, 3, 1, 0, 0, 1, tzinfo=UTC)
    made = now - timedelta(seconds=2)
    span = made - datetime(2024, 2, 1, tzinfo=UTC)

    text = encode_unique_id(bytes(4), 1, 2, int(span.total_seconds() * 1000), 3)

    assert unique_id_time_ms(text, int(now.timestamp() * 1000)) == made.timestamp() * 1000
