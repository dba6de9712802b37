"""The variables and metrics that RUNNING.md and the alerts name exist."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import httpx

from eruca.contract.names import AUDIT_TOPIC, ORDERED_TOPICS_NAMESPACE
from eruca_broker.settings import BrokerSettings
from eruca_chassis.running.known_settings import CREDENTIAL_VARIABLES, known_settings
from eruca_console.settings import ConsoleSettings
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.settings import QuerySettings
from eruca_testing import RunningCluster
from eruca_txn_checker.settings import TxnCheckerSettings
from support import alerts
from support.authority import Authority
from support.forked import forked
from support.rules import bearer, write_rules

RUNNING = (Path(__file__).parents[2] / "RUNNING.md").read_text()
CLIENT_VARIABLES = {
    "ERUCA_NAMESRV_URLS",
    "ERUCA_NETWORK",
    "ERUCA_OFFSETS_DIR",
    "ERUCA_QUERY_URLS",
    "ERUCA_STANDBY_FROM_BYTES",
    "ERUCA_TXN_CHECKER_URLS",
}
PACKAGES = {
    "eruca_namesrv",
    "eruca_broker",
    "eruca_txn_checker",
    "eruca_query",
    "eruca_controller",
    "eruca_console",
    "eruca_postgres",
}


def shown_by_a_closed_service(folder: Path) -> str:
    """Return the metrics of a service that has a certificate and rules."""
    authority = Authority(folder)
    pair = authority.pair("127.0.0.1")
    rules = write_rules(folder / "rules.toml", roles={"administrator": ["user:ann"]})
    settings = {
        "ERUCA_NAMESRV_PORT": "0",
        "ERUCA_NAMESRV_TLS_CERT_FILE": str(pair.cert),
        "ERUCA_NAMESRV_TLS_KEY_FILE": str(pair.key),
        "ERUCA_AUTH_FILE": str(rules),
    }
    with forked("eruca_namesrv", settings) as process:
        trusted = ssl.create_default_context(cafile=authority.ca_file)
        url = f"{process.url}/metrics"
        return httpx.get(url, headers=bearer("user:ann"), verify=trusted, trust_env=False).text


def test_every_variable_and_metric_that_running_and_the_alerts_name_is_there(
    tmp_path: Path,
) -> None:
    named = set(re.findall(r"\bERUCA_[A-Z_]*[A-Z]\b", RUNNING + alerts.TEXT))
    kinds = (
        NamesrvSettings,
        BrokerSettings,
        TxnCheckerSettings,
        QuerySettings,
        ControllerSettings,
        ConsoleSettings,
    )
    known = {setting.variable for kind in kinds for setting in known_settings(kind).all}
    assert {*CREDENTIAL_VARIABLES} < known
    assert named - known - {ORDERED_TOPICS_NAMESPACE, AUDIT_TOPIC} == CLIENT_VARIABLES

    metrics = set(re.findall(r"\beruca_[a-z_]+\b", RUNNING + alerts.TEXT)) - PACKAGES
    shown = shown_by_a_closed_service(tmp_path)
    tier = {"ERUCA_BROKER_TIER_URL": str(tmp_path / "tier")}
    with RunningCluster(
        replicas=2, txn_checkers=1, queries=1, consoles=1, settings=tier
    ) as cluster:
        for service in cluster.plan.services:
            shown += httpx.get(f"{service.url}/metrics", trust_env=False).text
    told = set(re.findall(r"^# TYPE (\w+) ", shown, re.MULTILINE))
    assert metrics
    assert metrics <= told
