"""The view of the overview: is the cluster well, and who is behind?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from eruca.contract.errors import ErucaError
from eruca.contract.names import is_derived_topic
from eruca.contract.routes import BrokerGroup
from eruca_console.cluster.brokers import BrokerRow, Fault, faults_of
from eruca_console.cluster.outcomes import Outcome, outcome, outcomes
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.shell.pages import Page, Shown, Visit

LAG_ROWS: Final = 8
_NOT_FOLLOWED: Final = N_("The query service cannot read its log: %(said)s")


async def view(visit: Visit) -> Shown:
    """Return the overview.

    Raises:
        ValidationError: There is a parameter.
    """
    check_parameters(visit.query, ())
    reading = visit.reading
    live, query, name_servers, lags, topics = await asyncio.gather(
        outcome(reading.brokers()),
        outcome(reading.query_status()),
        outcome(reading.name_servers()),
        outcome(reading.lags()),
        outcome(reading.topics()),
    )
    by_name: dict[str, BrokerGroup] = {one.broker_name: one for one in live.value or ()}
    names = sorted({*by_name, *reading.known.without(by_name)})
    statuses = await outcomes(by_name, lambda name: reading.status(by_name[name]))
    rows = [BrokerRow(name, by_name.get(name), statuses.get(name, Outcome())) for name in names]
    totals = lags.value.value if lags.value is not None else {}
    behind = [(group, total) for group, total in totals.items() if total.lag != 0]
    behind.sort(key=lambda one: (one[1].lag is None, one[1].lag or 0), reverse=True)
    faults = [fault for row in rows for fault in faults_of(row)]
    faults += _of_name_servers(name_servers)
    if query.value is not None:
        faults += [
            Fault(name, _NOT_FOLLOWED, is_severe=False, values={"said": text})
            for name, text in query.value.faults.items()
        ]
    values: dict[str, Any] = {
        "live": live,
        "rows": rows,
        "faults": sorted(faults, key=lambda fault: not fault.is_severe),
        "query": query,
        "name_servers": name_servers,
        "topics": topics,
        "topic_count": sum(
            not is_derived_topic(name)
            for name in (topics.value.value if topics.value is not None else ())
        ),
        "lags": lags,
        "behind": behind[:LAG_ROWS],
        "behind_count": len(behind),
        "total_lag": _total([total.lag for total in totals.values()])
        if lags.value is not None and lags.value.is_whole
        else None,
    }
    namesrv = visit.namesrv_urls.split(";")[0]
    recipe = recipes.Recipe(
        recipes.curl(f"{namesrv}/v1/brokers", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            "for name, status in client.admin.cluster_status().items():",
            "    print(name, status.role, status.is_writable, status.disk_used_ratio)",
        ),
        recipes.cli("status"),
    )
    return Shown(N_("Overview"), values, recipe)


def _total(lags: Sequence[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None


def _of_name_servers(name_servers: Outcome[Any]) -> list[Fault]:
    found: dict[str, object] = {} if name_servers.value is None else name_servers.value
    return [
        Fault(url, "%(said)s", is_severe=False, values={"said": error.detail})
        for url, error in found.items()
        if isinstance(error, ErucaError) and error.status != 403
    ]


PAGE: Final = Page("overview", "/overview", "overview", view)
