"""Vectors of SQL92 filters: which compile, what they evaluate to, and which messages they pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eruca.contract.errors import FilterSyntaxError
from eruca.core.filters.sql92 import EvaluationError, Sql92Filter, compile_sql92


def run_filter(case: dict[str, Any]) -> None:
    try:
        compiled = compile_sql92(case["expression"] or "")
    except FilterSyntaxError as error:
        refused = error
    else:
        # RocketMQ reads such a filter up to where it is complete, and drops the rest unseen.
        assert not case.get("upstream_ignores_trailing_input")
        assert _outcome(compiled, case) == case["expected"]
        assert compiled.matches(_properties(case)) == case["matches"]
        return
    assert case["expected"] == "syntax_error" or case.get("upstream_ignores_trailing_input")
    assert refused.position is not None


def _outcome(compiled: Sql92Filter, case: dict[str, Any]) -> bool | str | None:
    try:
        return compiled.evaluate(_properties(case))
    except EvaluationError:
        return "eval_error"


def _properties(case: dict[str, Any]) -> dict[str, str]:
    """Return the message's properties; one that is null is not there."""
    properties = case["properties"] or {}
    return {name: value for name, value in properties.items() if value is not None}


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {"sql92": run_filter}
