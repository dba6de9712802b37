"""Every metric of the alerting rules exists, on the services that should have it."""

from __future__ import annotations

import re
from collections import defaultdict

import httpx
import pytest

from eruca_testing import RunningCluster
from support.alerts import RULES
from support.waiting import until_told

FOLLOWED = ("eruca_query_fault{", "eruca_txn_checker_fault{")  # once a broker is
REPLICATED = ("eruca_broker_clock_skew_seconds{", "eruca_broker_replica_behind_bytes{")  # likewise


async def shown_by(urls: list[str]) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return "".join([(await client.get(f"{url}/metrics")).text for url in urls])


@pytest.mark.anyio
async def test_what_an_alert_looks_at_has_the_labels_that_it_names() -> None:
    with RunningCluster(replicas=2, txn_checkers=1, queries=1) as cluster:
        urls = [service.url for service in cluster.plan.services]
        shown = await until_told(
            lambda: shown_by(urls),
            lambda text: all(metric in text for metric in (*FOLLOWED, *REPLICATED)),
        )

    told = set(re.findall(r"^# TYPE (\w+) ", shown, re.MULTILINE))
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for metric, in_braces in re.findall(r"^(\w+)\{(.*)\} ", shown, re.MULTILINE):
        labels[metric] |= set(re.findall(r'(\w+)="', in_braces))
    for rule in RULES:
        assert rule.metrics <= told, rule.name
        for metric in rule.metrics if rule.labels else ():
            assert rule.labels <= labels[metric], (rule.name, metric)
