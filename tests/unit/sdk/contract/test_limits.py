"""Limits: those that must fit into each other do."""

from __future__ import annotations

from eruca.contract import limits, names, records, wire


def test_the_derived_topics_of_the_longest_group_fit() -> None:
    longest = "g" * limits.GROUP_SIZE_MAX

    assert len(names.retry_topic(longest)) <= limits.DERIVED_TOPIC_SIZE_MAX
    assert len(names.dead_letter_topic(longest)) <= limits.DERIVED_TOPIC_SIZE_MAX


def test_a_topic_of_the_longest_name_takes_the_first_layout() -> None:
    assert limits.TOPIC_SIZE_MAX <= records.V1_TOPIC_SIZE_MAX


def test_one_message_of_the_largest_body_fits_into_a_batch_and_a_pull() -> None:
    record = records.Record("t" * limits.TOPIC_SIZE_MAX, b"", properties="p" * 32_767)
    overhead = len(records.encode_record(record))

    assert limits.BODY_SIZE_MAX + overhead <= limits.RECORDS_SIZE_MAX
    assert limits.RECORDS_SIZE_MAX <= limits.PULL_SIZE_MAX
    assert limits.RECORDS_SIZE_MAX <= limits.LOG_READ_SIZE_MAX
    assert wire.BATCH_BODY_SIZE_MAX == 32 + 4 * 8_192 + limits.RECORDS_SIZE_MAX


def test_a_body_in_base64_fits_into_a_json_request() -> None:
    assert limits.BODY_SIZE_MAX * 4 // 3 + 64 * 1024 <= limits.JSON_BODY_SIZE_MAX


def test_defaults_are_within_their_limits() -> None:
    assert 1 <= limits.PULL_COUNT_DEFAULT <= limits.PULL_COUNT_MAX
    assert 1 <= limits.PULL_SIZE_DEFAULT <= limits.PULL_SIZE_MAX
    assert 1 <= limits.QUEUE_COUNT_DEFAULT <= limits.QUEUE_COUNT_MAX
    assert 1 <= limits.LIST_LIMIT_DEFAULT <= limits.LIST_LIMIT_MAX
    assert 1 <= limits.LOG_READ_SIZE_DEFAULT <= limits.LOG_READ_SIZE_MAX
