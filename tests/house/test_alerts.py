"""The alerting rules are ones that Prometheus can evaluate, and each says what it is to say."""

from __future__ import annotations

import re

import promql_parser
import pytest

from support.alerts import RULES, Rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_an_alert_is_raised_by_a_sound_expression(rule: Rule) -> None:
    promql_parser.parse(rule.expression)


def test_an_expression_that_is_not_sound_would_be_found() -> None:
    with pytest.raises(ValueError, match="rate"):
        promql_parser.parse("rate(eruca_broker_overload_refusals_total) > 0")


def test_each_alert_has_a_name_of_its_own() -> None:
    """Or an operator gets it twice, with two actions."""
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_an_alert_compares(rule: Rule) -> None:
    """Or it would be raised for as long as its metric is there."""
    assert re.search(r"[<>]|==", rule.expression)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_an_alert_says_what_is_so_and_what_to_do(rule: Rule) -> None:
    for part in ("severity: ", "summary: ", "action: "):
        assert part in rule.text
