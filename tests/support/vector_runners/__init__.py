"""Runners of the conformance vectors: what turns one case of a file into calls and assertions.

Each module beside this one exposes ``RUNNERS``. A key is ``"<file>/<kind>"``, or ``"<file>"`` alone
for a file whose cases have no kind, or for a runner that tells all of its file's kinds apart by
itself. A runner takes the case and asserts; for a kind it does not know it must fail.

A new module is added to the import and to ``_MODULES`` below; two runners for one key are an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from support.vector_runners import (
    allocations,
    consume_results,
    delays,
    hashes,
    latency_faults,
    log_appends,
    message_formats,
    names,
    retries,
    sql_filters,
    store,
    tag_expressions,
    transaction_checks,
)

Case: TypeAlias = dict[str, Any]
Runner: TypeAlias = Callable[[Case], None]

_MODULES: Final = (
    consume_results,
    allocations,
    delays,
    hashes,
    latency_faults,
    log_appends,
    message_formats,
    names,
    retries,
    sql_filters,
    store,
    tag_expressions,
    transaction_checks,
)


def _merged() -> dict[str, Runner]:
    runners: dict[str, Runner] = {}
    for module in _MODULES:
        twice = runners.keys() & module.RUNNERS.keys()
        assert not twice, f"{module.__name__} has a second runner for {sorted(twice)}"
        runners.update(module.RUNNERS)
    return runners


RUNNERS: Final = _merged()


def runner_for(file: str, kind: str | None) -> Runner:
    """Return what runs a case of this *kind* of *file*.

    Raises:
        LookupError: Nothing does: the vectors hold something new.
    """
    runner = RUNNERS.get(f"{file}/{kind}") or RUNNERS.get(file)
    if runner is None:
        raise LookupError(f"no runner knows the kind {kind!r} of the file {file!r}")
    return runner
