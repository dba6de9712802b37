"""Vectors of retries: when a message is tried again, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eruca.contract.names import RETRY_TOPIC_PREFIX
from eruca.contract.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    decode_properties,
    encode_properties,
)
from eruca.contract.records import Record, decode_record, encode_record
from eruca_broker.core.consuming.retry_policy import (
    STEPS_SKIPPED,
    grown_delay_ms,
    step_delay_ms,
    verdict,
)
from eruca_broker.core.records.dead_letters import Origin, dead_letter_of, origin_of, retry_of
from eruca_broker.core.records.scheduled import LEVELS, delivered, destination_of, properties_of
from support.records import decode_draft
from support.rocketmq_service_rules import invisible_after_failure_ms, is_resend_dead

GROUP: Final = "GID_a"  # all cases are of this group …
TOPIC: Final = "TopicTest"  # … and of messages to this topic
RESEND_LEVEL: Final = 5  # which RocketMQ's client gave the messages of client_retry_send


def run_send_back(case: dict[str, Any]) -> None:
    if not case["retry_queue_nums"]:
        assert not case["expected_stored"]  # a group without a retry queue: there is none here
        return
    times_max = case["request_max_reconsume_times"]
    result = verdict(
        case["message_reconsume_times"],
        times_max=case["group_retry_max_times"] if times_max is None else times_max,
        policy=None,
        now_ms=0,
        level=case["requested_delay_level"],
    )
    raw = _message(case["origin_retry_topic_property"])
    known = origin_of(decode_record(raw))
    origin = Origin(known.topic, known.queue_id, known.offset, "MID")
    times = result.reconsume_times
    if result.wait is None:
        record = decode_draft(
            dead_letter_of(raw, GROUP, origin, reconsume_times=times, reason="failed", error=None)
        )
        final = record
    else:
        record = decode_draft(
            retry := retry_of(
                raw,
                GROUP,
                origin,
                reconsume_times=times,
                wait=result.wait,
                reason="failed",
                error=None,
            )
        )
        destination = destination_of(properties_of(retry))
        assert destination is not None
        final = decode_draft(delivered(retry, destination))

    level = 0 if result.wait is None else result.wait.level
    assert case["expected_response_code"] == 0
    assert case["expected_stored"]
    assert record.topic == case["expected_stored_topic"]
    assert final.topic == case["expected_topic"]
    assert times == final.reconsume_times == case["expected_reconsume_times"]
    assert level == min(case["expected_requested_level"], LEVELS.max_level)
    assert level == case["expected_effective_level"]
    assert (LEVELS.delays_ms[level - 1] if level else 0) == case["expected_delay_seconds"] * 1000
    properties = decode_properties(final.properties)
    assert properties[RETRY_TOPIC] == case["expected_retry_topic_property"]
    assert properties[ORIGIN_MESSAGE_ID] == case["expected_origin_message_id"]


def run_client_retry_send(case: dict[str, Any]) -> None:
    topic, times_max = case["topic"], case["header_max_reconsume_times"]
    is_dead = topic.startswith(RETRY_TOPIC_PREFIX) and is_resend_dead(
        case["header_reconsume_times"] or 0,
        case["group_retry_max"] if times_max is None else times_max,
        is_orderly=case["group_has_live_queue_lock"],
    )

    sent = {RETRY_TOPIC: TOPIC, DELAY: str(RESEND_LEVEL)}
    raw = encode_record(Record(topic=topic, body=b"body", properties=encode_properties(sent)))
    if is_dead:
        origin = Origin(TOPIC, 0, 0, "MID")
        raw = dead_letter_of(raw, GROUP, origin, reconsume_times=0, reason="failed", error=None)
    stored = decode_record(raw, check_crc=False)

    assert stored.topic == case["expected_topic"]
    level = decode_properties(stored.properties).get(DELAY, "0")
    assert int(level) == case["expected_delay_level"]


def run_customized_policy(case: dict[str, Any]) -> None:
    steps = LEVELS.delays_ms if case["steps_ms"] is None else case["steps_ms"]

    delay_ms = step_delay_ms(steps, case["reconsume_times"], skipped=STEPS_SKIPPED)

    assert delay_ms == case["expected_ms"]


def run_exponential_policy(case: dict[str, Any]) -> None:
    grown_ms = grown_delay_ms(case["initial_ms"], case["multiplier"], case["reconsume_times"])

    assert min(_as_java_long(grown_ms), case["max_ms"]) == case["expected_ms"]


def run_pop_invisible_after_failure(case: dict[str, Any]) -> None:
    invisible_ms = invisible_after_failure_ms(case["delay_level"], case["reconsume_times"])

    assert invisible_ms == case["expected_invisible_ms"]


def _as_java_long(value: int) -> int:
    """Return what is left of a product in 64 bits; Eruca's delays do not wrap around."""
    return (value + 2**63) % 2**64 - 2**63


def _message(retry_topic: str | None) -> bytes:
    properties = encode_properties({RETRY_TOPIC: retry_topic})
    topic = TOPIC if retry_topic is None else RETRY_TOPIC_PREFIX + GROUP
    return encode_record(Record(topic=topic, body=b"body", properties=properties))


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "retry_delays/send_back": run_send_back,
    "retry_delays/client_retry_send": run_client_retry_send,
    "retry_delays/customized_policy": run_customized_policy,
    "retry_delays/exponential_policy": run_exponential_policy,
    "retry_delays/pop_invisible_after_failure": run_pop_invisible_after_failure,
}
