"""The variables and metrics that RUNNING.md and the alerts name exist."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from eruca.contract.names import ORDERED_TOPICS_NAMESPACE
from eruca_broker.settings import BrokerSettings
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.settings import QuerySettings
from eruca_testing import RunningCluster
from eruca_txn_checker.settings import TxnCheckerSettings
from support import alerts

RUNNING = (Path(__file__).parents[2] / "RUNNING.md").read_text()
CLIENT_VARIABLES = {
    "ERUCA_CONTROLLER_URLS",
    "ERUCA_NAMESRV_URLS",
    "ERUCA_NETWORK",
    "ERUCA_OFFSETS_DIR",
    "ERUCA_QUERY_URLS",
    "ERUCA_TXN_CHECKER_URLS",
}
PACKAGES = {
    "eruca_namesrv",
    "eruca_broker",
    "eruca_txn_checker",
    "eruca_query",
    "eruca_controller",
    "eruca_postgres",
}


def test_every_variable_and_metric_that_running_and_the_alerts_name_is_there() -> None:
    named = set(re.findall(r"\bERUCA_[A-Z_]*[A-Z]\b", RUNNING + alerts.TEXT))
    kinds = (
        NamesrvSettings,
        BrokerSettings,
        TxnCheckerSettings,
        QuerySettings,
        ControllerSettings,
    )
    known = {variable for kind in kinds for variable in kind.variables().values()}
    assert named - known - {ORDERED_TOPICS_NAMESPACE} == CLIENT_VARIABLES

    metrics = set(re.findall(r"\beruca_[a-z_]+\b", RUNNING + alerts.TEXT)) - PACKAGES
    shown = ""
    with RunningCluster(replicas=2, txn_checkers=1, queries=1) as cluster:
        for service in cluster.plan.services:
            shown += httpx.get(f"{service.url}/metrics", trust_env=False).text
    told = set(re.findall(r"^# TYPE (\w+) ", shown, re.MULTILINE))
    assert metrics
    assert metrics <= told
