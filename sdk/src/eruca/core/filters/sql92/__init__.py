"""SQL92 filters: conditions over a message's properties, such as ``price > 20 AND city = 'Rome'``.

:func:`compile_sql92` turns a text into a :class:`Sql92Filter`, or raises the contract's
``FilterSyntaxError`` with the position and a fix. The broker evaluates filters. The SDK compiles
them before it sends them, so the error appears where the mistake is, and users can test a filter
without a broker.
"""

from __future__ import annotations

from eruca.core.filters.sql92.compiler import CACHE_SIZE, Sql92Filter, compile_sql92
from eruca.core.filters.sql92.conditions import Properties
from eruca.core.filters.sql92.parser import DEPTH_MAX
from eruca.core.filters.sql92.values import EvaluationError

__all__ = [
    "CACHE_SIZE",
    "DEPTH_MAX",
    "EvaluationError",
    "Properties",
    "Sql92Filter",
    "compile_sql92",
]
