"""Wrong rules: each function breaks one rule of the product in the process that calls it.

A suite that does not find them finds nothing. Each is the fault of a real system, which the product
excludes by a rule. None of it is in the product: a process of a run is started with the name of a
mutation, and patches itself before the service starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MUTATIONS: Final[dict[str, Callable[[], None]]] = {}


def apply(name: str) -> None:
    """Break a rule; do nothing if *name* is empty."""
    if name:
        MUTATIONS[name]()
