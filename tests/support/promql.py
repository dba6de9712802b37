"""The metrics and labels that an expression of PromQL looks at."""

from __future__ import annotations

import re
from typing import Final

import promql_parser

OF_EVERY_TARGET: Final = {"job", "instance"}  # labels that Prometheus adds
OF_HISTOGRAMS: Final = ("_bucket", "_sum", "_count")


def metrics_of(expression: str) -> set[str]:
    """Return the metrics of Eruca's, by the names of their families."""
    return {
        re.sub(f"({'|'.join(OF_HISTOGRAMS)})$", "", selector.name)
        for selector in _selectors(expression)
        if selector.name is not None and selector.name.startswith("eruca_")
    }


def labels_of(expression: str) -> set[str]:
    """Return the labels that its metrics must have: those that it matches, or groups by."""
    matched = {
        matcher.name
        for selector in _selectors(expression)
        for matcher in selector.matchers.matchers
    }
    listed = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    grouped = {label.strip() for labels in listed for label in labels.split(",")}
    return (matched | grouped) - OF_EVERY_TARGET


def _selectors(expression: str) -> list[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            found.append(part)
        elif isinstance(part, promql_parser.MatrixSelector):
            found.append(part.vector_selector)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found
