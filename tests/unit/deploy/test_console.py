"""The output of a local cluster: URLs and commands can be copied from a narrow terminal."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from eruca_deploy.console import ready_report, role_of
from eruca_deploy.plan import plan_cluster, ports_from
from support.group_rows import group

DATA = Path("/home/somebody/.local/share/eruca/a-directory-of-a-name-that-is-rather-long/local")


@pytest.mark.parametrize("replicas", [1, 2])
def test_no_url_path_or_command_is_broken_at_80_columns(replicas: int) -> None:
    counts = {"namesrvs": 3, "brokers": 2, "txn_checkers": 1, "queries": 1}
    counts |= {"replicas": replicas, "controllers": replicas - 1}
    groups = {"broker-a": group(epoch=1_000)} if replicas > 1 else {}
    plan = plan_cluster(ports=ports_from(21_600, **counts), data_dir=DATA, environment={}, **counts)
    text = StringIO()
    urls = ";".join(service.url for service in plan.namesrvs)
    report = ready_report(
        plan,
        DATA,
        seconds=1.5,
        resident_bytes=2**28,
        groups=groups,
        environment={},
        client_environment={"ERUCA_NAMESRV_URLS": urls, "ERUCA_API_KEY_FILE": "/a b/ann.key"},
    )

    Console(file=text, width=80, force_terminal=True, color_system=None).print(report, crop=False)

    shown = text.getvalue()
    name_servers = "http://127.0.0.1:21600;http://127.0.0.1:21601;http://127.0.0.1:21602"
    lines = [line.strip() for line in shown.splitlines()]
    assert {service.url for service in plan.services} <= set(shown.split())
    assert f"data in {DATA}" in lines
    assert f"export ERUCA_NAMESRV_URLS='{name_servers}'" in lines
    assert "export ERUCA_API_KEY_FILE='/a b/ann.key'" in lines
    assert lines.count(f"Read and try every service's API: {plan.queries[0].url}/docs") == 1


def test_each_replica_is_shown_with_its_role() -> None:
    counts = {"namesrvs": 1, "brokers": 1, "replicas": 3, "queries": 1, "controllers": 1}
    plan = plan_cluster(ports=ports_from(21_600, **counts), data_dir=DATA, environment={}, **counts)
    groups = {"broker-a": group(epoch=4, master=2, in_sync=(1, 2))}

    assert [role_of(service, groups) for service in plan.services] == [
        "",
        "",
        "in sync",
        "master, epoch 4",
        "catching up",
        "",
    ]
