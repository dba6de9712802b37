"""Every metric of the rules and dashboards exists, on the services that should have it."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections import defaultdict
from pathlib import Path

import httpx
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from support.alerts import FOLDER, RECORDED, RULES
from support.dashboards import SHOWN
from support.patience import PATIENCE_SECONDS
from support.promql import labels_of, metrics_of
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


BUSY = (  # once messages were sent and read
    "eruca_broker_topic_messages_in_total{",
    "eruca_broker_topic_messages_out_total{",
    "eruca_broker_group_committed_messages_total{",
    "eruca_broker_group_committed_bytes_total{",
    "eruca_broker_group_lag_messages{",
    "eruca_broker_transactions_decided_total{",
)
PROMTOOL = shutil.which("promtool")


async def shown_by(urls: list[str], trusted: ssl.SSLContext, key: str) -> list[str]:
    async with httpx.AsyncClient(trust_env=False, verify=trusted, auth=("", key)) as client:
        return [(await client.get(f"{url}/metrics")).text for url in urls]


async def use(client: eruca.AsyncClient) -> None:
    """Let messages be sent and read, a group commit twice, and a transaction be decided."""
    await client.admin.create_topic("orders", queue_count=1)
    producer = client.producer()
    shop = client.transaction_producer("shop")
    async with shop, shop.transaction(eruca.Message("orders", "0")):
        pass
    async with client.pull_consumer("billing", topics="orders", start="earliest") as consumer:
        for _ in range(2):
            await producer.send(eruca.Message("orders", "x"))
            count = len(await consumer.poll(wait_seconds=PATIENCE_SECONDS))
            assert count
            await consumer.commit()


def flaws(shown: str) -> str:
    """Return what promtool says of the names and texts of metrics."""
    assert PROMTOOL is not None
    checked = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=shown, capture_output=True, text=True, check=False
    )
    return checked.stdout + checked.stderr


@pytest.mark.anyio
async def test_what_is_looked_at_exists_with_the_labels_that_are_named(tmp_path: Path) -> None:
    """By alerts, recording rules and dashboards; and promtool finds the metrics well named."""
    async with LocalCluster(
        replicas=2,
        txn_checkers=1,
        queries=1,
        is_secure=True,
        settings={"ERUCA_BROKER_TIER_URL": str(tmp_path / "tier")},
    ) as cluster:
        urls = [service.url for service in cluster.plan.services]
        trusted = ssl.create_default_context(cafile=cluster.ca_file)
        assert cluster.keys is not None
        key = cluster.keys.administrator_file.read_text().strip()
        async with eruca.AsyncClient(
            cluster.namesrv_urls,
            credentials=eruca.ApiKey(key),
            tls_files=eruca.TlsFiles(ca_file=str(cluster.ca_file)),
        ) as client:
            await use(client)
        with cluster.keys.rules_file.open("a") as rules:
            rules.write(ISSUER)
        each = await until_told(
            lambda: shown_by(urls, trusted, key),
            lambda texts: (
                all(metric in "".join(texts) for metric in (*FOLLOWED, *REPLICATED, *BUSY))
                and "".join(texts).count(AWAY) == len(urls)
            ),
        )

    shown = "".join(each)
    told = set(re.findall(r"^# TYPE (\w+) ", shown, re.MULTILINE))
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for metric, in_braces in re.findall(r"^(\w+)\{(.*)\} ", shown, re.MULTILINE):
        family = re.sub("(_bucket|_sum|_count)$", "", metric)
        labels[metric if metric in told else family] |= set(re.findall(r'(\w+)="', in_braces))
    looking = [(rule.name, rule.metrics, rule.labels) for rule in RULES]
    looking += [(name, metrics_of(text), labels_of(text)) for name, text in RECORDED]
    looking += [(one.place, one.metrics, one.labels) for one in SHOWN]
    for name, metrics, wanted in looking:
        assert metrics <= told, name
        for metric in metrics if wanted else ():
            assert wanted <= labels[metric], (name, metric)
    if PROMTOOL is None:
        pytest.skip("promtool is not there (Debian: prometheus): the metrics' names are unchecked")
    assert {flaws(text) for text in each} == {""}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not there (Debian: prometheus)")
def test_promtool_would_find_a_flaw() -> None:
    assert "_total" in flaws("# HELP sent x\n# TYPE sent counter\nsent 1\n")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not there (Debian: prometheus)")
def test_promtool_finds_the_rules_sound() -> None:
    assert PROMTOOL is not None
    files = sorted(map(str, FOLDER.glob("*.yml")))
    subprocess.run([PROMTOOL, "check", "rules", *files], check=True, capture_output=True)
