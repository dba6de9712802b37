"""The cluster's plan: ports, names, directories and settings of every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca_deploy.plan import (
    BROKER_COUNT_MAX,
    CONTROLLER_COUNT_MAX,
    GOVERNED,
    NAMESRV_COUNT_MAX,
    PERSONAL,
    QUERY_COUNT_MAX,
    TXN_CHECKER_COUNT_MAX,
    PlanError,
    check_replicas,
    local_url,
    plan_cluster,
    ports_from,
    without_own_database,
)


def test_standard_ports_leave_those_of_other_services_alone() -> None:
    ports = ports_from(
        None,
        namesrvs=NAMESRV_COUNT_MAX,
        brokers=BROKER_COUNT_MAX,
        txn_checkers=TXN_CHECKER_COUNT_MAX,
        queries=QUERY_COUNT_MAX,
        controllers=CONTROLLER_COUNT_MAX,
    )

    assert ports[0] == 9876
    assert ports[NAMESRV_COUNT_MAX] == 10911
    assert ports[NAMESRV_COUNT_MAX + BROKER_COUNT_MAX] == 10921
    assert ports[-CONTROLLER_COUNT_MAX - QUERY_COUNT_MAX] == 10931
    assert ports[-CONTROLLER_COUNT_MAX] == 9885, "behind the name servers"
    assert len(set(ports)) == len(ports)


def test_a_base_port_numbers_name_servers_first() -> None:
    assert ports_from(7000, namesrvs=2, brokers=3) == [7000, 7001, 7002, 7003, 7004]
    assert ports_from(7000, namesrvs=1, brokers=1, txn_checkers=1) == [7000, 7001, 7002]
    assert ports_from(7000, namesrvs=1, brokers=1, queries=1) == [7000, 7001, 7002]
    assert ports_from(7000, namesrvs=1, brokers=1, controllers=1) == [7000, 7001, 7002]
    assert ports_from(None, namesrvs=1, brokers=1, controllers=2) == [9876, 10911, 9878, 9879]


@pytest.mark.parametrize(
    ("base_port", "namesrvs", "brokers", "named"),
    [
        (65_535, 1, 1, "65536"),
        (0, 1, 1, "found 0 to"),
        (None, 0, 1, "name servers, found 0"),
        (None, 1, 10, "brokers, found 10"),
        (7000, 1, 0, "brokers, found 0"),
    ],
)
def test_an_impossible_cluster_is_an_error_that_says_so(
    base_port: int | None, namesrvs: int, brokers: int, named: str
) -> None:
    with pytest.raises(PlanError, match=named):
        ports_from(base_port, namesrvs=namesrvs, brokers=brokers)


def test_brokers_know_every_name_server_and_have_a_store_each(tmp_path: Path) -> None:
    plan = plan_cluster(
        namesrvs=2, brokers=2, ports=[7000, 7001, 7002, 7003], data_dir=tmp_path, environment={}
    )

    assert [service.name for service in plan.services] == [
        "namesrv-1",
        "namesrv-2",
        "broker-a",
        "broker-b",
    ]
    broker = plan.brokers[1]
    assert broker.url == "http://127.0.0.1:7003"
    assert broker.settings == {
        "ERUCA_BROKER_NAME": "broker-b",
        "ERUCA_BROKER_HOST": "127.0.0.1",
        "ERUCA_BROKER_PORT": "7003",
        "ERUCA_BROKER_STORE_DIR": str(tmp_path / "broker-b"),
        "ERUCA_BROKER_NAMESRV_URLS": "http://127.0.0.1:7000;http://127.0.0.1:7001",
        "ERUCA_BROKER_ADVERTISED_URL": "http://127.0.0.1:7003",
    }


def test_replicas_share_a_name_and_nothing_else(tmp_path: Path) -> None:
    counts = {"namesrvs": 1, "brokers": 2, "replicas": 2, "controllers": 1}
    plan = plan_cluster(
        ports=ports_from(7000, **counts), data_dir=tmp_path, environment={}, **counts
    )

    assert [service.name for service in plan.services] == [
        "namesrv-1",
        "controller",
        "broker-a-1",
        "broker-a-2",
        "broker-b-1",
        "broker-b-2",
    ]
    assert plan.broker_names == ("broker-a", "broker-b")
    first, second = plan.brokers[:2]
    assert first.settings["ERUCA_BROKER_NAME"] == second.settings["ERUCA_BROKER_NAME"]
    assert [one.settings["ERUCA_BROKER_REPLICA_ID"] for one in (first, second)] == ["1", "2"]
    assert second.settings["ERUCA_BROKER_CONTROLLER_URLS"] == plan.controllers[0].url
    assert plan.controllers[0].port == 7005
    assert len({service.directory for service in plan.brokers}) == 4
    assert plan.namesrvs[0].settings["ERUCA_NAMESRV_EXPECTED_BROKERS"] == "broker-a;broker-b"


def test_the_first_replica_keeps_the_messages_of_a_broker_without_replicas(tmp_path: Path) -> None:
    counts = {"namesrvs": 1, "brokers": 1}
    alone = plan_cluster(ports=[1, 2], data_dir=tmp_path, environment={}, **counts)
    first, _ = plan_cluster(
        ports=[1, 2, 3, 4], data_dir=tmp_path, environment={}, replicas=2, controllers=1, **counts
    ).brokers

    assert first.directory == alone.brokers[0].directory


def test_brokers_with_replicas_are_not_started_without_them(tmp_path: Path) -> None:
    check_replicas(tmp_path, 1)
    plan = plan_cluster(
        namesrvs=1,
        brokers=1,
        replicas=2,
        controllers=1,
        ports=[1, 2, 3, 4],
        data_dir=tmp_path,
        environment={},
    )
    plan.brokers[1].directory.mkdir()

    check_replicas(tmp_path, 2)
    with pytest.raises(PlanError, match="have replicas; give --replicas 2"):
        check_replicas(tmp_path, 1)


@pytest.mark.parametrize(
    ("brokers", "replicas", "named"),
    [(5, 2, "1 to 4 brokers with 2 replicas each, found 5"), (1, 4, "1 to 3 replicas, found 4")],
)
def test_processes_of_brokers_are_limited_in_all(brokers: int, replicas: int, named: str) -> None:
    with pytest.raises(PlanError, match=named):
        ports_from(None, namesrvs=1, brokers=brokers, replicas=replicas)


def test_hosts_to_bind_come_from_the_environment(tmp_path: Path) -> None:
    environment = {"ERUCA_BROKER_HOST": "0.0.0.0", "ERUCA_NAMESRV_HOST": "::1"}

    plan = plan_cluster(
        namesrvs=1, brokers=1, ports=[7000, 7001], data_dir=tmp_path, environment=environment
    )

    assert plan.brokers[0].settings["ERUCA_BROKER_HOST"] == "0.0.0.0"
    assert plan.brokers[0].url == "http://127.0.0.1:7001"
    assert plan.namesrvs[0].url == "http://[::1]:7000"


def test_every_setting_that_differs_between_children_is_listed_as_governed(tmp_path: Path) -> None:
    plan = plan_cluster(
        namesrvs=1,
        brokers=1,
        txn_checkers=1,
        queries=1,
        controllers=1,
        consoles=1,
        replicas=2,
        ports=[1, 2, 3, 4, 5, 6, 7],
        data_dir=tmp_path,
        environment={},
    )
    settings = {name for service in plan.services for name in service.settings}

    inherited = {
        "ERUCA_NAMESRV_HOST",
        "ERUCA_BROKER_HOST",
        "ERUCA_TXN_CHECKER_HOST",
        "ERUCA_TXN_CHECKER_WEBHOOK_REACH",
        "ERUCA_QUERY_HOST",
        "ERUCA_CONTROLLER_HOST",
        "ERUCA_CONTROLLER_STORE",
        "ERUCA_CONSOLE_HOST",
        *PERSONAL,  # taken away from every console
        "ERUCA_CONTROLLER_EXPLORER_ORIGINS",
        "ERUCA_NAMESRV_EXPLORER_ORIGINS",
        "ERUCA_BROKER_EXPLORER_ORIGINS",
        "ERUCA_TXN_CHECKER_EXPLORER_ORIGINS",
    }
    assert settings - inherited == set(GOVERNED)


@pytest.mark.parametrize(
    ("environment", "has_directory"), [({}, True), ({"DATABASE_URL": "postgresql://other"}, False)]
)
def test_checkers_and_query_services_share_one_postgres(
    tmp_path: Path, environment: dict[str, str], *, has_directory: bool
) -> None:
    plan = plan_cluster(
        namesrvs=1,
        brokers=1,
        txn_checkers=2,
        queries=2,
        ports=[1, 2, 3, 4, 5, 6],
        data_dir=tmp_path,
        environment=environment,
    )

    assert [service.name for service in plan.txn_checkers] == ["txn-checker", "txn-checker-2"]
    assert [service.name for service in plan.queries] == ["query", "query-2"]
    sharing = plan.txn_checkers + plan.queries
    assert {service.directory for service in sharing} == {tmp_path / "postgres"}
    assert {service.has_directory for service in sharing} == {has_directory}


def test_the_url_of_its_own_postgres_is_not_taken_for_another_one(tmp_path: Path) -> None:
    """It is shown for other terminals, and may be set where the cluster is started again."""
    own = {"DATABASE_URL": f"postgresql://postgres:@/postgres?host={tmp_path}/postgres", "A": "1"}
    others = {"DATABASE_URL": f"postgresql://postgres:@/postgres?host={tmp_path}/other/postgres"}

    assert without_own_database(own, tmp_path / "postgres") == {"A": "1"}
    assert without_own_database(others, tmp_path / "postgres") == others
    assert without_own_database({}, tmp_path / "postgres") == {}


def test_the_query_services_pages_may_call_every_other_service(tmp_path: Path) -> None:
    environment = {"ERUCA_BROKER_EXPLORER_ORIGINS": "https://docs.example"}

    plan = plan_cluster(
        namesrvs=1,
        brokers=1,
        txn_checkers=1,
        queries=1,
        ports=[1, 2, 3, 4],
        data_dir=tmp_path,
        environment=environment,
    )

    explorer = "http://127.0.0.1:4;http://localhost:4"
    [namesrv], [broker], [checker], [query] = (
        plan.namesrvs,
        plan.brokers,
        plan.txn_checkers,
        plan.queries,
    )
    assert namesrv.settings["ERUCA_NAMESRV_EXPLORER_ORIGINS"] == explorer
    assert broker.settings["ERUCA_BROKER_EXPLORER_ORIGINS"] == f"{explorer};https://docs.example"
    assert checker.settings["ERUCA_TXN_CHECKER_EXPLORER_ORIGINS"] == explorer
    assert "ERUCA_QUERY_EXPLORER_ORIGINS" not in query.settings


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
    ],
)
def test_a_service_that_listens_everywhere_is_reached_on_loopback(host: str, url: str) -> None:
    assert local_url(host, 80) == url


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({}, "postgres"),
        ({"DATABASE_URL": "postgresql://elsewhere/db"}, None),
        ({"ERUCA_CONTROLLER_STORE": "file"}, "controller"),
        ({"ERUCA_CONTROLLER_STORE": "etcd"}, None),
    ],
)
def test_controllers_share_the_store_that_the_environment_names(
    tmp_path: Path, environment: dict[str, str], directory: str | None
) -> None:
    plan = plan_cluster(
        namesrvs=1,
        brokers=1,
        controllers=2,
        ports=[7000, 7001, 7002, 7003],
        data_dir=tmp_path,
        environment=environment,
    )

    assert [service.name for service in plan.services] == [
        "namesrv-1",
        "controller",
        "controller-2",
        "broker-a",
    ]
    for controller in plan.controllers:
        assert controller.has_directory is (directory is not None)
        assert directory is None or controller.directory == tmp_path / directory
    second = plan.controllers[1]
    assert second.url == "http://127.0.0.1:7003"
    assert second.settings["ERUCA_CONTROLLER_NAMESRV_URLS"] == "http://127.0.0.1:7000"


def test_a_console_has_no_credentials_of_the_person_who_starts_the_cluster(
    tmp_path: Path,
) -> None:
    plan = plan_cluster(
        namesrvs=1,
        brokers=1,
        consoles=1,
        ports=[1, 2, 3],
        data_dir=tmp_path,
        environment=dict.fromkeys(PERSONAL, "x"),
    )

    [console] = plan.consoles
    assert {console.settings[name] for name in PERSONAL} == {""}
    assert (console.name, console.url) == ("console", "http://127.0.0.1:3")
