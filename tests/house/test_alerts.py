"""The alerting rules are ones that Prometheus can evaluate, and each says what it is to say."""

from __future__ import annotations

import re
from pathlib import Path

import promql_parser
import pytest

from support.alerts import RULES, Rule

RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()


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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_an_alert_has_a_section_of_the_runbook_that_says_the_same(rule: Rule) -> None:
    [section] = re.findall(rf"^## {rule.name}\n(.*?)(?=^## |\Z)", RUNBOOK, re.M | re.S)
    [action] = re.findall(r'action: "(.*)"', rule.text)

    assert f'runbook_url: "/runbook.html#{rule.name.lower()}"' in rule.text
    assert action in " ".join(section.split())


def test_the_runbook_has_no_section_of_another_alert() -> None:
    assert set(re.findall(r"^## (\w+)$", RUNBOOK, re.M)) == {rule.name for rule in RULES}
