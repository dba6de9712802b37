"""The view of a topic's volume over time, of which a part can be chosen, and its newest messages.

Without a time the page slides along with the present: its columns and its messages are the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from eruca.contract.errors import ValidationError
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.histogram import COLUMN_COUNT, columns_of, sliding, total_of
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.core.times import typed_time
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

SPANS: Final[Mapping[str, tuple[timedelta, str]]] = {
    "15m": (timedelta(minutes=15), N_("15 minutes")),
    "1h": (timedelta(hours=1), N_("an hour")),
    "6h": (timedelta(hours=6), N_("six hours")),
    "1d": (timedelta(days=1), N_("a day")),
    "7d": (timedelta(days=7), N_("seven days")),
}
SPAN_DEFAULT: Final = "1h"
TAIL_COUNT: Final = 20


async def view(visit: Visit) -> Shown:
    """Return the columns of a time, and its newest messages.

    Raises:
        TopicNotFoundError: No broker has the topic.
        ValidationError: A parameter is unknown or invalid.
    """
    topic = visit.path["topic"]
    path = f"/topics/{quote(topic, safe='')}/volume"
    check_parameters(visit.query, ("last", "since", "until", "format"))
    last = visit.query.get("last", SPAN_DEFAULT)
    if last not in SPANS:
        raise ValidationError(
            f"query.last: expected one of {', '.join(SPANS)}, found {last[:20]!r}"
        )
    since = typed_time(visit.query.get("since", ""), "since")
    until = typed_time(visit.query.get("until", ""), "until")
    if (since is None) != (until is None):
        raise ValidationError(
            "query.since: expected both since and until, or none of them", fix="give both"
        )
    is_sliding = since is None or until is None
    if since is None or until is None:
        since, until = sliding(visit.now, SPANS[last][0])
    if since >= until:
        raise ValidationError("query.since: expected a time before until", fix="exchange them")
    reading = visit.reading
    counts, found = await asyncio.gather(
        outcome(reading.counts(topic, since, until, COLUMN_COUNT)),
        outcome(
            reading.messages(
                topic,
                key=None,
                tag=None,
                since=since,
                until=until,
                limit=TAIL_COUNT,
                cursor=None,
            )
        ),
    )
    if counts.is_missing:
        counts.check()
    if visit.wants_file:
        counts.check()
    columns = [] if counts.value is None else columns_of(counts.value)
    values: dict[str, Any] = {
        "topic": topic,
        "path": path,
        "counts": counts,
        "columns": columns,
        "total": total_of(columns) if counts.is_known else None,
        "largest": max((one.count for one in columns if one.count is not None), default=0),
        "found": found,
        "since": since,
        "until": until,
        "is_sliding": is_sliding,
        "spans": [
            (text, f"{path}?{urlencode({'last': name})}", is_sliding and name == last)
            for name, (_, text) in SPANS.items()
        ],
        "file_url": f"{path}?{urlencode({**visit.query, 'format': 'csv'})}",
        "brokers": []
        if counts.value is None
        else [one.broker_name for one in counts.value.read_model],
    }
    table = CsvTable(
        f"volume-of-{topic}",
        ("start", "end", "count"),
        [(one.start, one.end, one.count) for one in columns],
        is_whole=counts.value is not None and not counts.value.incomplete,
    )
    query = urlencode({"topic": topic, "since": since.isoformat(), "until": until.isoformat()})
    recipe = recipes.Recipe(
        recipes.curl(
            f"{await reading.query_url()}/v1/message-counts?{query}", has_key=visit.has_key
        ),
        recipes.python(
            visit.namesrv_urls,
            f"for one in client.query.counts({topic!r}).counts:",
            "    print(one.start, one.count)",
        ),
    )
    return Shown(N_("Messages over time"), values, recipe, table)


PAGE: Final = Page(
    "topic_volume",
    "/topics/{topic}/volume",
    "topics",
    view,
    parents=((N_("Topics"), "/topics"),),
)
