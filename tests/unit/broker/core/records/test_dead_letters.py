"""Retries and dead letters as records: what they remember, and what they forget."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from eruca.contract.limits import ERROR_TEXT_SIZE_MAX, PROPERTIES_SIZE_MAX
from eruca.contract.properties import encode_properties
from eruca.contract.records import Record, decode_record, encode_record
from eruca_broker.core.records.dead_letters import (
    Origin,
    dead_letter_of,
    error_text,
    origin_of,
    redriven,
    retry_of,
)
from eruca_broker.core.records.scheduled import (
    Destination,
    PropertiesTooLargeError,
    Wait,
    delivered,
    destination_of,
    properties_of,
)
from support.records import decode_draft, example_record

ORIGIN = origin_of(example_record())


def retried(record: Record, times: int, *, error: str | None = None) -> Record:
    raw = retry_of(
        encode_record(record),
        "g",
        origin_of(record),
        reconsume_times=times,
        wait=Wait(level=3),
        reason="failed",
        error=error,
    )
    destination = destination_of(properties_of(raw))
    assert destination == ("%RETRY%g", 0)
    return decode_draft(delivered(raw, destination))


def test_a_retry_of_a_retry_remembers_the_first_place() -> None:
    first = retried(example_record(), 2)
    moved = replace(first, queue_offset=400, log_offset=99_999)

    second = retried(moved, 3)

    assert origin_of(first) == origin_of(second) == ORIGIN
    assert ORIGIN[:3] == ("orders", 3, 5)
    assert (first.reconsume_times, second.reconsume_times) == (2, 3)
    assert first.properties == second.properties


def test_a_retry_tells_why_the_message_was_sent_back_the_last_time() -> None:
    first = retried(example_record(), 1, error="ValueError: no").property_map()
    second = retried(retried(example_record(), 1, error="ValueError: no"), 2).property_map()

    assert first["ERUCA_RETRY_REASON"] == second["ERUCA_RETRY_REASON"] == "failed"
    assert first["ERUCA_RETRY_ERROR"] == "ValueError: no"
    assert "ERUCA_RETRY_ERROR" not in second


@pytest.mark.parametrize("left", [120, 192, 1_000, 3_000])
def test_a_retry_makes_do_with_the_room_there_is(left: int) -> None:
    size = PROPERTIES_SIZE_MAX - left - len("a\x01\x02")
    record = replace(example_record(), properties=encode_properties({"a": "x" * size}))

    if left == 120:
        with pytest.raises(PropertiesTooLargeError):
            retried(record, 1, error="e" * 900)
        return
    properties = retried(record, 1, error="e" * 900).property_map()

    assert properties["RETRY_TOPIC"] == "orders"
    assert ("ERUCA_RETRY_ERROR" in properties) == (left == 3_000)
    assert ("ERUCA_RETRY_REASON" in properties) == (left >= 1_000)


def test_a_dead_letter_tells_where_from_and_why_and_forgets_it_when_redriven() -> None:
    raw = dead_letter_of(
        encode_record(retried(example_record(), 2)),
        "g",
        ORIGIN,
        reconsume_times=3,
        reason="failed",
        error="ValueError: no",
    )

    letter = decode_draft(raw)
    again = decode_draft(redriven(raw, Destination("orders", 1)))

    properties = letter.property_map()
    assert (letter.topic, letter.queue_id, letter.reconsume_times) == ("%DLQ%g", 0, 3)
    assert origin_of(letter) == ORIGIN
    assert properties["ERUCA_DEAD_REASON"] == "failed"
    assert properties["ERUCA_DEAD_ERROR"] == "ValueError: no"
    assert properties["DLQ_ORIGIN_TOPIC"] == properties["RETRY_TOPIC"] == "orders"
    assert properties["DLQ_ORIGIN_MESSAGE_ID"] == ORIGIN.message_id
    assert again == replace(
        decode_record(encode_record(example_record())), queue_id=1, reconsume_times=0
    )


@pytest.mark.parametrize("left", [60, 150, 1_000, 3_000])
def test_a_dead_letter_makes_do_with_the_room_there_is(left: int) -> None:
    size = PROPERTIES_SIZE_MAX - left - len("a\x01\x02")
    record = replace(example_record(), properties=encode_properties({"a": "x" * size}))
    arguments = {"reconsume_times": 1, "reason": "failed", "error": "e" * 900}

    letter = decode_draft(dead_letter_of(encode_record(record), "g", ORIGIN, **arguments))  # type: ignore[arg-type]

    assert letter.property_map()["a"] == "x" * size
    assert (origin_of(letter).topic == "orders") == (left > 60)
    assert ("ERUCA_DEAD_ERROR" in letter.property_map()) == (left == 3_000)
    assert ("ERUCA_DEAD_REASON" in letter.property_map()) == (left >= 1_000)


def test_what_rocketmq_sent_back_has_no_known_queue() -> None:
    properties = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "MID"}
    record = replace(example_record(), topic="%RETRY%g", properties=encode_properties(properties))
    dead = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "MID", "ERUCA_ORIGIN_QID": "x"}

    assert origin_of(record) == Origin("orders", None, None, "MID")
    assert origin_of(replace(record, properties=encode_properties(dead))) == origin_of(record)
    assert origin_of(retried(record, 1)) == origin_of(record)


@pytest.mark.parametrize("name", ["RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"])
def test_a_producers_own_properties_name_no_origin(name: str) -> None:
    record = replace(example_record(), properties=encode_properties({name: "secret"}))

    assert origin_of(record) == ORIGIN
    assert origin_of(retried(record, 1)) == ORIGIN


@given(st.text(st.characters(exclude_categories=[]), max_size=2_000))
def test_an_errors_text_is_kept_within_its_limit_and_separates_nothing(text: str) -> None:
    kept = error_text(text)

    assert len(kept.encode()) <= ERROR_TEXT_SIZE_MAX
    assert not set(kept) & set("\x00\x01\x02")


def test_no_error_is_no_text() -> None:
    assert error_text(None) == error_text(" \x02 ") == ""
