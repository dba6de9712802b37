"""Generate the Grafana dashboards of ``deploy/grafana`` from the tables in this file.

The output is checked in: compose mounts the folder, and any Grafana imports the files. A test
compares the files with the output of this script, and each expression with the metrics that the
services expose.

    python deploy/tools/dashboards.py           write
    python deploy/tools/dashboards.py --check   only compare; exit code 1 if something differs
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "grafana"
WIDTH: Final = 24  # of Grafana's grid
HEIGHT: Final = 8  # of a panel
STAT_HEIGHT: Final = 4
INTERVAL: Final = "$__rate_interval"


class Query(NamedTuple):
    """An expression, and the name of each of its series."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """A panel: a graph over time, or the last value."""

    title: str
    meaning: str
    queries: tuple[Query, ...]
    unit: str = "short"
    is_stat: bool = False
    width: int = 12


class Dashboard(NamedTuple):
    """A dashboard: its file's name is its uid."""

    uid: str
    title: str
    variables: tuple[tuple[str, str], ...]  # a label, and the metric that has its values
    panels: tuple[Panel, ...]


def rate(metric: str, matching: str = "", by: str = "") -> str:
    """Return the expression of a counter's rate, summed."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{matching}[{INTERVAL}]))"


def quantile(part: float, metric: str, by: str, matching: str = "") -> str:
    """Return the expression of a quantile of a histogram."""
    buckets = rate(f"{metric}_bucket", matching, f"le, {by}")
    return f"histogram_quantile({part}, {buckets})"


BROKER: Final = '{instance=~"$instance"}'
GROUP: Final = '{group=~"$group"}'

DASHBOARDS: Final = (
    Dashboard(
        "eruca-cluster",
        "Eruca: cluster",
        (),
        (
            Panel(
                "Services that do not answer",
                "0 is good. The alert ErucaServiceDown names them.",
                (Query('count(up{job=~"eruca.*"} == 0) or vector(0)', "away"),),
                is_stat=True,
                width=6,
            ),
            Panel(
                "Brokers that refuse writes",
                "Full disk, or a store that has failed.",
                (Query("count(eruca_broker_writable == 0) or vector(0)", "refuse"),),
                is_stat=True,
                width=6,
            ),
            Panel(
                "Messages that wait for groups",
                "Sum of the largest lags that the brokers export.",
                (Query("sum(eruca_broker_group_lag_messages)", "messages"),),
                is_stat=True,
                width=6,
            ),
            Panel(
                "Brokers",
                "As the name servers know them.",
                (Query("min(eruca_namesrv_brokers)", "brokers"),),
                is_stat=True,
                width=6,
            ),
            Panel(
                "Messages stored and pulled",
                "Of all brokers.",
                (
                    Query(rate("eruca_broker_messages_in_total"), "stored"),
                    Query(rate("eruca_broker_messages_out_total"), "pulled"),
                ),
                unit="cps",
            ),
            Panel(
                "Bytes stored and pulled",
                "Bytes of records, of all brokers.",
                (
                    Query(rate("eruca_broker_bytes_in_total"), "stored"),
                    Query(rate("eruca_broker_bytes_out_total"), "pulled"),
                ),
                unit="Bps",
            ),
            Panel(
                "Topics with the most messages",
                "The ten with the highest rate of stored messages.",
                (
                    Query(
                        f"topk(10, {rate('eruca_broker_topic_messages_in_total', by='topic')})",
                        "{{topic}}",
                    ),
                ),
                unit="cps",
            ),
            Panel(
                "Largest lags",
                "The ten pairs of group and topic with the most messages to read.",
                (
                    Query(
                        "topk(10, sum by (group, topic) (eruca_broker_group_lag_messages))",
                        "{{group}} · {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Requests that failed",
                "Answers with 500 and above, by service.",
                (
                    Query(
                        rate("eruca_http_requests_total", '{status=~"5.."}', "job, instance"),
                        "{{instance}}",
                    ),
                ),
                unit="reqps",
            ),
            Panel(
                "Requests without the right, or above a quota",
                "See `eruca audit find --event refusal`.",
                (
                    Query(rate("eruca_access_refusals_total", by="reason"), "{{reason}}"),
                    Query(rate("eruca_quota_refusals_total"), "quota"),
                ),
                unit="reqps",
            ),
        ),
    ),
    Dashboard(
        "eruca-broker",
        "Eruca: broker",
        (("instance", "eruca_broker_writable"),),
        (
            Panel(
                "Messages stored and pulled",
                "Each broker.",
                (
                    Query(
                        rate("eruca_broker_messages_in_total", BROKER, "instance"),
                        "{{instance}} stored",
                    ),
                    Query(
                        rate("eruca_broker_messages_out_total", BROKER, "instance"),
                        "{{instance}} pulled",
                    ),
                ),
                unit="cps",
            ),
            Panel(
                "Time until a message is durable",
                "Median and 99th percentile, from the append to its answer.",
                (
                    Query(
                        quantile(0.5, "eruca_broker_append_seconds", "instance", BROKER),
                        "{{instance}} median",
                    ),
                    Query(
                        quantile(0.99, "eruca_broker_append_seconds", "instance", BROKER),
                        "{{instance}} 99 %",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Messages in by topic",
                "The ten topics with the highest rate.",
                (
                    Query(
                        "topk(10, "
                        + rate("eruca_broker_topic_messages_in_total", BROKER, "topic")
                        + ")",
                        "{{topic}}",
                    ),
                ),
                unit="cps",
            ),
            Panel(
                "Messages out by topic",
                "The ten topics with the highest rate.",
                (
                    Query(
                        "topk(10, "
                        + rate("eruca_broker_topic_messages_out_total", BROKER, "topic")
                        + ")",
                        "{{topic}}",
                    ),
                ),
                unit="cps",
            ),
            Panel(
                "Bytes in by topic",
                "The ten topics with the highest rate.",
                (
                    Query(
                        "topk(10, "
                        + rate("eruca_broker_topic_bytes_in_total", BROKER, "topic")
                        + ")",
                        "{{topic}}",
                    ),
                ),
                unit="Bps",
            ),
            Panel(
                "Disk used",
                "At 0.85 segments are deleted whatever their age, at 0.90 writes are refused.",
                (Query(f"eruca_broker_disk_used_ratio{BROKER}", "{{instance}}"),),
                unit="percentunit",
            ),
            Panel(
                "Cold reads",
                "Bytes read from the disk for clients, because they were not in memory.",
                (Query(rate("eruca_broker_cold_read_bytes_total", BROKER), "{{instance}}"),),
                unit="Bps",
            ),
            Panel(
                "Closed segments that are not in the tier",
                "Above 0 for long: the tier fails, or is slower than the messages.",
                (Query(f"eruca_broker_tier_behind_bytes{BROKER}", "{{instance}}"),),
                unit="bytes",
            ),
            Panel(
                "Read from the tier",
                "Bytes fetched from the object store for readers of old messages.",
                (Query(rate("eruca_broker_tier_fetched_bytes_total", BROKER), "{{instance}}"),),
                unit="Bps",
            ),
            Panel(
                "Bytes not flushed",
                "A power failure would lose them.",
                (Query(f"eruca_broker_unflushed_bytes{BROKER}", "{{instance}}"),),
                unit="bytes",
            ),
            Panel(
                "Bytes that projections have not read",
                "Above 0 for long: messages are stored but not visible yet.",
                (
                    Query(
                        f"eruca_broker_projection_behind_bytes{BROKER}",
                        "{{instance}} {{projection}}",
                    ),
                ),
                unit="bytes",
            ),
            Panel(
                "Requests in progress and held",
                "Held requests wait for messages.",
                (
                    Query(f"eruca_broker_held_requests{BROKER}", "{{instance}} pulls held"),
                    Query(f"eruca_broker_held_group_requests{BROKER}", "{{instance}} groups"),
                    Query(f"eruca_http_connections{BROKER}", "{{instance}} connections"),
                ),
            ),
            Panel(
                "Requests refused because of overload",
                "A limit of bytes in flight is reached.",
                (
                    Query(
                        rate("eruca_broker_overload_refusals_total", BROKER, "instance"),
                        "{{instance}}",
                    ),
                ),
                unit="reqps",
            ),
        ),
    ),
    Dashboard(
        "eruca-group",
        "Eruca: consumer group",
        (("group", "eruca_broker_group_lag_messages"),),
        (
            Panel(
                "Lag by topic",
                "Messages that the group has not read yet.",
                (
                    Query(
                        f"sum by (group, topic) (eruca_broker_group_lag_messages{GROUP})",
                        "{{group}} · {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Messages consumed",
                "What the group's commits move its positions past, and what it acknowledges.",
                (
                    Query(
                        rate("eruca_broker_group_committed_messages_total", GROUP, "group, topic"),
                        "{{group}} · {{topic}}",
                    ),
                ),
                unit="cps",
            ),
            Panel(
                "Bytes consumed",
                "Bytes of the messages consumed, including those that a filter excluded.",
                (
                    Query(
                        rate("eruca_broker_group_committed_bytes_total", GROUP, "group, topic"),
                        "{{group}} · {{topic}}",
                    ),
                ),
                unit="Bps",
            ),
            Panel(
                "Retries and dead letters",
                "Of all groups.",
                (
                    Query(rate("eruca_broker_retries_total"), "sent back"),
                    Query(rate("eruca_broker_deliveries_nacked_total"), "rejected"),
                    Query(rate("eruca_broker_dead_letters_total"), "dead letters"),
                    Query(rate("eruca_broker_deliveries_dead_total"), "dead deliveries"),
                ),
                unit="cps",
            ),
            Panel(
                "Members and locks",
                "Of all groups, at each broker.",
                (
                    Query("sum by (instance) (eruca_broker_members)", "{{instance}} members"),
                    Query("sum by (instance) (eruca_broker_locked_queues)", "{{instance}} locks"),
                ),
            ),
            Panel(
                "Sessions that expired",
                "Members that crashed, or were cut off.",
                (
                    Query(
                        rate("eruca_broker_sessions_expired_total", by="instance"), "{{instance}}"
                    ),
                ),
                unit="cps",
            ),
            Panel(
                "Deliveries",
                "Messages leased to simple consumers.",
                (
                    Query(rate("eruca_broker_deliveries_total"), "handed out"),
                    Query(rate("eruca_broker_deliveries_again_total"), "again"),
                    Query(rate("eruca_broker_deliveries_acked_total"), "acknowledged"),
                ),
                unit="cps",
            ),
        ),
    ),
    Dashboard(
        "eruca-transactions",
        "Eruca: transactions",
        (),
        (
            Panel(
                "Without a decision",
                "Pending ones are checked; parked ones wait for an operator.",
                (
                    Query("sum(eruca_broker_transactions_pending)", "pending"),
                    Query("sum(eruca_broker_transactions_parked)", "parked"),
                ),
            ),
            Panel(
                "Begun and decided",
                "Half messages, and decisions by outcome and author.",
                (
                    Query(rate("eruca_broker_transactions_begun_total"), "begun"),
                    Query(
                        rate("eruca_broker_transactions_decided_total", by="outcome, by"),
                        "{{outcome}} by {{by}}",
                    ),
                ),
                unit="cps",
            ),
            Panel(
                "Checks",
                "Granted by brokers, sent to producers, and put off because nobody took them.",
                (
                    Query(rate("eruca_broker_transaction_checks_total"), "granted"),
                    Query(rate("eruca_txn_checker_questions_total"), "sent"),
                    Query(rate("eruca_txn_checker_checks_put_off_total"), "put off"),
                ),
                unit="cps",
            ),
            Panel(
                "Bytes that checkers have not read",
                "Of each broker's log.",
                (
                    Query(
                        "max by (broker) (eruca_txn_checker_behind_bytes)",
                        "{{broker}}",
                    ),
                ),
                unit="bytes",
            ),
        ),
    ),
    Dashboard(
        "eruca-replication",
        "Eruca: replication",
        (),
        (
            Panel(
                "Masters",
                "1 for each broker with a master; 0: its queues wait.",
                (Query('sum by (broker) (eruca_broker_role{role="master"})', "{{broker}}"),),
            ),
            Panel(
                "Replicas in sync",
                "And the least number, below which the master refuses sends.",
                (
                    Query("max by (broker) (eruca_broker_copies)", "{{broker}}"),
                    Query(
                        "max by (broker) (eruca_controller_group_min_in_sync)", "{{broker}} least"
                    ),
                ),
            ),
            Panel(
                "Bytes that replicas are behind",
                "Not acknowledged to the master.",
                (
                    Query(
                        "max by (broker, replica) (eruca_broker_replica_behind_bytes)",
                        "{{broker}} replica {{replica}}",
                    ),
                ),
                unit="bytes",
            ),
            Panel(
                "Epochs",
                "Each step is a change of the master.",
                (Query("max by (broker) (eruca_controller_group_epoch)", "{{broker}}"),),
            ),
            Panel(
                "Clock skew",
                "A replica's clock minus its master's.",
                (
                    Query(
                        "max by (broker, instance) (eruca_broker_clock_skew_seconds)",
                        "{{broker}} at {{instance}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "The controllers' store",
                "Failures, and whether it answers.",
                (
                    Query("min by (instance) (eruca_controller_store_up)", "{{instance}} up"),
                    Query(
                        rate("eruca_controller_store_failures_total", by="instance"),
                        "{{instance}} failures",
                    ),
                ),
            ),
        ),
    ),
    Dashboard(
        "eruca-exports",
        "Eruca: queries and exports",
        (),
        (
            Panel(
                "Exports that run",
                "Each has workers of its own.",
                (Query("sum by (instance) (eruca_query_exports_running)", "{{instance}}"),),
            ),
            Panel(
                "Rows exported",
                "Of all exports.",
                (Query(rate("eruca_query_export_rows_total", by="instance"), "{{instance}}"),),
                unit="cps",
            ),
            Panel(
                "Bytes exported",
                "Of all exports.",
                (Query(rate("eruca_query_export_bytes_total", by="instance"), "{{instance}}"),),
                unit="Bps",
            ),
            Panel(
                "Exports that were cut off",
                "The client went away, or the service stopped.",
                (Query(rate("eruca_query_exports_cut_total", by="instance"), "{{instance}}"),),
                unit="cps",
            ),
            Panel(
                "Rows written to the read model",
                "By the query service, from the brokers' logs.",
                (Query(rate("eruca_query_rows_total", by="instance"), "{{instance}}"),),
                unit="cps",
            ),
            Panel(
                "Bytes that the read model is behind",
                "Of each broker's log.",
                (Query("max by (broker) (eruca_query_behind_bytes)", "{{broker}}"),),
                unit="bytes",
            ),
        ),
    ),
)

_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON model."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["eruca"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # one crosshair in all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Eruca",
                "tags": ["eruca"],
                "asDropdown": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": _panels(dashboard.panels),
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def _variable(variable: tuple[str, str]) -> dict[str, Any]:
    label, metric = variable
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({metric}, {label})",
        "refresh": 2,  # whenever the range of time changes
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    placed = []
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        height = STAT_HEIGHT if panel.is_stat else HEIGHT
        if x + panel.width > WIDTH or (row_height and height != row_height):
            x, y = 0, y + row_height
        row_height = height
        placed.append(_panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
    return placed


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": number,
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
    if not panel.is_stat:
        shown["options"] = {"tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.title == "Clock skew":
        del shown["fieldConfig"]["defaults"]["min"]
    return shown


def texts() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        FOLDER / f"{dashboard.uid}.json": json.dumps(document(dashboard), indent=2) + "\n"
        for dashboard in DASHBOARDS
    }


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare with the existing files")
    only_check = parser.parse_args().check
    made = texts()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in FOLDER.glob("*.json") if path not in made]
    for path in stale:
        print(f"{'stale' if only_check else 'written'}: {path.name}")
        if not only_check:
            path.write_text(made[path]) if path in made else path.unlink()
    return int(only_check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
