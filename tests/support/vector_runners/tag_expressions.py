"""Vectors of tag expressions: what they parse to, and which messages they let through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eruca.contract.hashing import tags_code
from eruca.core.filters.tag_expression import Subscription, TagExpressionError, parse_tag_expression
from support.rocketmq_rules import parse_subscription


def run_parse(case: dict[str, Any]) -> None:
    assert _outcome(case, lambda: parse_tag_expression(case["expression"])) == _expected(case)


def run_parse_typed(case: dict[str, Any]) -> None:
    got = _outcome(case, lambda: parse_subscription(case["expression"], case["type"]))

    assert got == _expected(case)


def _outcome(case: dict[str, Any], parse: Callable[[], Subscription]) -> dict[str, Any]:
    try:
        subscription = parse()
    except TagExpressionError as error:
        return {"error": error.code}
    outcome: dict[str, Any] = {
        "sub_string": subscription.expression,
        "tags": sorted(subscription.tags),
        "codes": sorted(subscription.codes),
    }
    if "type" in case["expected"]:
        outcome["type"] = subscription.expression_type
    return outcome


def _expected(case: dict[str, Any]) -> dict[str, Any]:
    # Java sorts by UTF-16 code unit, Python by code point.
    expected: dict[str, Any] = dict(case["expected"])
    if "tags" in expected:
        expected["tags"] = sorted(expected["tags"])
    return expected


def run_match(case: dict[str, Any]) -> None:
    subscription = parse_tag_expression(case["expression"])
    tag = case["message_tag"]

    passes = subscription.matches_code(tags_code(tag or ""))

    assert passes == case["expected_broker_match"]
    assert (passes and subscription.matches_tag(tag)) == case["expected_delivered"]


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "tag_expression/parse": run_parse,
    "tag_expression/parse_typed": run_parse_typed,
    "tag_expression/match": run_match,
}
