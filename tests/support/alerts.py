"""The alerting rules that are shipped, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import promql_parser

TEXT: Final = (Path(__file__).parents[2] / "deploy" / "prometheus" / "eruca-alerts.yml").read_text()
_OF_EVERY_TARGET: Final = {"job", "instance"}  # labels that Prometheus adds


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert."""

    name: str
    expression: str
    text: str  # all of it

    @property
    def metrics(self) -> set[str]:
        """The metrics of Eruca's that it looks at."""
        return {
            selector.name
            for selector in self._selectors()
            if selector.name is not None and selector.name.startswith("eruca_")
        }

    @property
    def labels(self) -> set[str]:
        """The labels that must be those of its metrics."""
        matched = {
            matcher.name for selector in self._selectors() for matcher in selector.matchers.matchers
        }
        listed = re.findall(r"\b(?:by|on) \(([^)]*)\)", self.expression)
        grouped = {label.strip() for labels in listed for label in labels.split(",")}
        shown = set(re.findall(r"\$labels\.(\w+)", self.text))
        return (matched | grouped | shown) - _OF_EVERY_TARGET

    def _selectors(self) -> list[promql_parser.VectorSelector]:
        found: list[promql_parser.VectorSelector] = []

        def visit(expression: promql_parser.Expr) -> None:
            if isinstance(expression, promql_parser.VectorSelector):
                found.append(expression)
            elif isinstance(expression, promql_parser.MatrixSelector):
                found.append(expression.vector_selector)

        promql_parser.walk(promql_parser.parse(self.expression), visit)
        return found


def _rules() -> list[Rule]:
    rules: list[Rule] = []
    for text in TEXT.split("- alert: ")[1:]:
        [expression] = re.findall(r"^ +expr: (?:>-)?(.*?)^ +(?:for|labels): ", text, re.M | re.S)
        rules.append(Rule(text.partition("\n")[0], " ".join(expression.split()), text))
    return rules


RULES: Final = _rules()
