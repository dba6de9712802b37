"""Vectors of topic and group names: which are legal, which are the system's, which are derived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eruca.contract import names
from support.rocketmq_rules import pop_retry_topic, pop_retry_topic_v1


def run_name(case: dict[str, Any]) -> None:
    name = case["name"] or ""

    assert _outcome(names.broker_topic_fault(name)) == case["broker_topic"]
    assert _outcome(names.broker_group_fault(name)) == case["broker_group"]
    assert _outcome(names.client_topic_fault(name)) == case["client_topic"]
    assert _outcome(names.client_group_fault(name)) == case["client_group"]
    assert names.is_system_topic(name) == case["is_system_topic"]


def _outcome(fault: names.NameFault | None) -> str:
    return "ok" if fault is None else fault.value


def run_derived(case: dict[str, Any]) -> None:
    group, topic = case["group"], case["for_topic"]

    assert names.retry_topic(group) == case["retry_topic"]
    assert names.dead_letter_topic(group) == case["dlq_topic"]
    assert pop_retry_topic_v1(group, topic) == case["pop_retry_topic_v1"]
    assert pop_retry_topic(group, topic) == case["pop_retry_topic_v2"]


def run_system_group(case: dict[str, Any]) -> None:
    assert names.is_system_group(case["group"]) == case["expected"]


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "names/name": run_name,
    "names/derived": run_derived,
    "names/system_group": run_system_group,
}
