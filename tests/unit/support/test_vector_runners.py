"""The registry of vector runners: what is not known fails, and is never passed."""

from __future__ import annotations

from typing import Any

import pytest

from support.vector_runners import RUNNERS, runner_for


def test_a_case_is_run_by_the_runner_of_its_kind() -> None:
    assert runner_for("latency_fault", "select") is RUNNERS["latency_fault/select"]


def test_a_file_without_kinds_has_one_runner() -> None:
    assert runner_for("tag_hash", None) is RUNNERS["tag_hash"]


@pytest.mark.parametrize(
    ("file", "kind"), [("of_another_subject", "any"), ("latency_fault", "guess")]
)
def test_an_unknown_file_or_kind_is_an_error(file: str, kind: str) -> None:
    with pytest.raises(LookupError, match=f"'{kind}' of the file '{file}'"):
        runner_for(file, kind)


def check_pass(half: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a case of one half message and no op message."""
    return {
        "transaction_timeout_ms": 6_000,
        "check_max": 15,
        "file_reserved_hours": 72,
        "half_consume_offset": 0,
        "op_consume_offset": 0,
        "half_messages": [{"offset": 0, "store_age_ms": 1_000, **half}],
        "op_messages": [],
        "expected_actions": actions,
        "expected_half_consume_offset": 0,
        "expected_op_consume_offset": 1,
        "expected_half_queue_length": 2,
        "expected_waits_for_op": 0,
    }


@pytest.mark.parametrize("text", ["abc", "", "-1", "2147483648", "1.5", "1 "])
def test_check_times_that_are_no_number_count_as_none_less(text: str) -> None:
    """RocketMQ reads -1, and counts one up from there."""
    again = {"action": "requeue_for_check", "new_half_offset": 1, "check_times_property": "0"}
    asked = {"action": "ask_producer", "half_offset": 1, "born_age_ms": 7_000}
    case = check_pass({"age_ms": 7_000, "check_times": text}, [again, asked])

    runner_for("transaction_check", "single")(case)

    case["expected_actions"][0]["check_times_property"] = "1"
    with pytest.raises(AssertionError):
        runner_for("transaction_check", "single")(case)


def test_a_note_that_is_no_offset_keeps_an_immune_half_message_from_going_back() -> None:
    """It is asked about as soon as RocketMQ may: here its birth lies in the future."""
    half = {"age_ms": -5, "immunity_seconds": "10", "prepared_queue_offset": "abc"}
    noted = {"check_times_property": "1", "prepared_queue_offset_property": "abc"}
    again = {"action": "requeue_for_check", "new_half_offset": 1, **noted}
    asked = {"action": "ask_producer", "half_offset": 1, "born_age_ms": -5}

    runner_for("transaction_check", "single")(check_pass(half, [again, asked]))


@pytest.mark.parametrize(
    ("file", "case"),
    [
        ("delay_levels", {"kind": "parse", "levels": None}),
        ("message_id", {"kind": "offset_id_decode", "id": None}),
        ("commitlog_record", {"kind": "properties_encode", "properties": None}),
        ("commitlog_record", {"kind": "body_crc", "body_hex": None}),
        ("sql92", {"expression": None, "properties": None, "expected": "syntax_error"}),
        ("tag_expression", {"kind": "parse", "expression": None}),
    ],
)
def test_a_field_that_is_null_is_empty(file: str, case: dict[str, Any]) -> None:
    expected: dict[str, dict[str, Any]] = {
        "parse": {"expected_ok": False, "expected_table_ms": {}, "expected_max_level": 0},
        "offset_id_decode": {"expected": {"error": "undecodable"}},
        "properties_encode": {"expected_text": "", "expected_hex": ""},
        "body_crc": {"expected": 0},
    }
    kind = case.get("kind")
    if file == "tag_expression":
        expected = {"parse": {"expected": {"sub_string": "*", "tags": [], "codes": []}}}

    runner_for(file, kind)({**case, **expected.get(kind or "", {})})


def test_a_dead_letter_has_no_delay_level_because_the_product_takes_it_away() -> None:
    case = {
        "topic": "%RETRY%GID_a",
        "group_retry_max": 0,
        "header_max_reconsume_times": None,
        "header_reconsume_times": 1,
        "group_has_live_queue_lock": False,
        "expected_topic": "%DLQ%GID_a",
        "expected_delay_level": 0,
    }
    runner_for("retry_delays", "client_retry_send")(case)

    with pytest.raises(AssertionError):
        runner_for("retry_delays", "client_retry_send")({**case, "expected_delay_level": 5})
