"""Every metric of the alerting rules exists, on the services that should have it."""

from __future__ import annotations

import re
import ssl
from collections import defaultdict

import httpx
import pytest

from eruca_deploy.cluster import LocalCluster
from support.alerts import RULES
from support.waiting import until_told

FOLLOWED = ("eruca_query_fault{", "eruca_txn_checker_fault{")  # once a broker is
REPLICATED = (  # likewise
    "eruca_broker_clock_skew_seconds{",
    "eruca_broker_replica_behind_bytes{",
    "eruca_broker_replica_keep_left_bytes{",
)
ISSUER = """
[[issuers]]
name = "corp"
issuer = "http://127.0.0.1:1/nobody"
audience = "eruca"
"""
AWAY = 'eruca_access_issuer_unreachable{issuer="corp"} 1.0'


async def shown_by(urls: list[str], trusted: ssl.SSLContext, key: str) -> str:
    async with httpx.AsyncClient(trust_env=False, verify=trusted, auth=("", key)) as client:
        return "".join([(await client.get(f"{url}/metrics")).text for url in urls])


@pytest.mark.anyio
async def test_what_an_alert_looks_at_has_the_labels_that_it_names() -> None:
    async with LocalCluster(replicas=2, txn_checkers=1, queries=1, is_secure=True) as cluster:
        urls = [service.url for service in cluster.plan.services]
        trusted = ssl.create_default_context(cafile=cluster.ca_file)
        assert cluster.keys is not None
        key = cluster.keys.administrator_file.read_text().strip()
        with cluster.keys.rules_file.open("a") as rules:
            rules.write(ISSUER)
        shown = await until_told(
            lambda: shown_by(urls, trusted, key),
            lambda text: (
                all(metric in text for metric in (*FOLLOWED, *REPLICATED))
                and text.count(AWAY) == len(urls)
            ),
        )

    told = set(re.findall(r"^# TYPE (\w+) ", shown, re.MULTILINE))
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for metric, in_braces in re.findall(r"^(\w+)\{(.*)\} ", shown, re.MULTILINE):
        labels[metric] |= set(re.findall(r'(\w+)="', in_braces))
    for rule in RULES:
        assert rule.metrics <= told, rule.name
        for metric in rule.metrics if rule.labels else ():
            assert rule.labels <= labels[metric], (rule.name, metric)
