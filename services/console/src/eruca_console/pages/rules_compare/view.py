"""The view of the differences of two versions of the rules: lines, and who may do more or less."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from eruca.contract.policies import PolicyDifferences
from eruca.core.access.differences import differences
from eruca.core.access.policy_lines import LineDifferences, line_differences
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.policy_changes import effects_of
from eruca_console.core.texts import N_
from eruca_console.core.version_numbers import version_number
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

LINE_COUNT_MAX: Final = 1_000  # of a page; the file has all
_PATH: Final = "/rules/compare"


async def view(visit: Visit) -> Shown:
    """Return the differences of two versions; without *to*, of one and the current one.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    check_parameters(visit.query, ("from", "to", "format"))
    numbers = {name: version_number(visit.query.get(name, ""), name) for name in ("from", "to")}
    current = await outcome(visit.reading.policy())
    sides = {
        name: current if number is None else await outcome(visit.reading.policy_version(number))
        for name, number in numbers.items()
    }
    before, after = sides["from"], sides["to"]
    if visit.wants_file:
        before.check()
        after.check()
    lines, effect = LineDifferences((), 0), None
    if before.value is not None and after.value is not None:
        old, new = before.value.policy, after.value.policy
        now_ms = int(visit.now.timestamp() * 1000)

        def compared() -> tuple[LineDifferences, PolicyDifferences]:
            return line_differences(old, new), differences(old, new, now_ms=now_ms)

        lines, effect = await asyncio.to_thread(compared)  # policies of 1 MiB take a second
    values: dict[str, Any] = {
        "path": _PATH,
        "current": current,
        "before": before,
        "after": after,
        "numbers": numbers,
        "lines": lines.lines[:LINE_COUNT_MAX],
        "lines_left_out": max(0, len(lines.lines) - LINE_COUNT_MAX),
        "same_count": lines.same_count,
        "effects": [] if effect is None else effects_of(effect),
        "left_out": 0 if effect is None else effect.right_count - len(effect.rights),
        "file_url": f"{_PATH}?"
        + "".join(f"{name}={number}&" for name, number in numbers.items() if number)
        + "format=csv",
    }
    table = CsvTable("differences-of-rules", ("sign", "line"), list(lines.lines))
    words = [str(number) for number in numbers.values() if number is not None]
    recipe = recipes.Recipe("", "", recipes.cli("auth", "diff", *(words or ["1"])))
    return Shown(N_("Compare versions"), values, recipe, table)


PAGE: Final = Page(
    "rules_compare",
    _PATH,
    "access",
    view,
    parents=((N_("Access"), "/access"), (N_("Rules"), "/rules")),
    is_live=False,
)
