"""Nulls in examples: FastAPI drops them from the document, so a mark replaces them meanwhile."""

from __future__ import annotations

from typing import Any, Final

_MARK: Final = "\0null"


def with_nulls(example: Any) -> Any:  # noqa: ANN401  (any JSON value)
    """Return *example* with its nulls marked, for ``responses=``; ``finish`` restores them."""
    return _replaced(example, None, _MARK)


def nulls_put_back(example: Any) -> Any:  # noqa: ANN401
    """Return *example* with nulls in place of the marks."""
    return _replaced(example, _MARK, None)


def _replaced(value: Any, old: object, new: object) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _replaced(member, old, new) for key, member in value.items()}
    if isinstance(value, list):
        return [_replaced(member, old, new) for member in value]
    return new if value == old else value
