"""The services and data of a local cluster; `test_local_cluster.py` starts services as programs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from eruca.contract.names import CHECKERS_NAMESPACE, QUERY_SERVICES_NAMESPACE
from eruca_deploy.cluster import LocalCluster, StartError
from eruca_deploy.data_lock import DataTakenError
from eruca_deploy.plan import PlanError
from eruca_postgres.embedded import running_url
from support.postgres import reachable_directory
from support.waiting import until_told

pytestmark = pytest.mark.anyio

SMALL = {"ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024)}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


@pytest.fixture
def directory() -> Iterator[Path]:
    with reachable_directory() as directory:
        yield directory


async def test_every_service_is_found_and_has_read_every_log_once_the_cluster_is_started(
    client: httpx.AsyncClient,
) -> None:
    async with LocalCluster(
        brokers=2, namesrvs=2, txn_checkers=1, queries=1, settings=SMALL
    ) as cluster:
        for url in (*cluster.query_urls, *cluster.txn_checker_urls):
            status = (await client.get(f"{url}/v1/status")).json()
            assert [log["broker_name"] for log in status["followed"]] == ["broker-a", "broker-b"]
        for url in cluster.namesrv_urls:
            for namespace in (QUERY_SERVICES_NAMESPACE, CHECKERS_NAMESPACE):
                table = (await client.get(f"{url}/v1/kv/{namespace}")).json()
                assert len(table["entries"]) == 1


async def test_temporary_data_do_not_go_into_a_database_that_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A terminal may have that of another cluster, as one is told to set it, or of a program."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")

    async with LocalCluster(queries=1, settings=SMALL) as cluster:
        [query] = cluster.plan.queries
        assert (query.directory / "PG_VERSION").exists()


async def test_its_own_database_is_no_other_one_wherever_its_socket_lies(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL that it told stays set in a terminal where it is started again."""
    blank = directory / "with a blank"
    async with LocalCluster(queries=1, data_dir=blank, settings=SMALL) as cluster:
        told = running_url(cluster.plan.queries[0].directory)
    assert told is not None
    assert str(blank) not in told
    monkeypatch.setenv("DATABASE_URL", told)

    async with LocalCluster(queries=1, data_dir=blank, settings=SMALL) as cluster:
        assert running_url(cluster.plan.queries[0].directory) == told


async def test_temporary_data_is_removed_at_the_end() -> None:
    async with LocalCluster(settings=SMALL) as cluster:
        store = cluster.plan.brokers[0].directory
        assert (store / "commitlog").is_dir()

    assert not store.parent.exists()


async def test_a_killed_broker_stays_dead_until_it_is_restarted(
    client: httpx.AsyncClient,
) -> None:
    async with LocalCluster(brokers=2, settings=SMALL) as cluster:
        await cluster.kill("broker-b")

        assert cluster.pid("broker-b") is None
        with pytest.raises(httpx.TransportError):
            await client.get(f"{cluster.broker_urls['broker-b']}/healthz")
        await cluster.restart("broker-b")
        answer = await client.get(f"{cluster.broker_urls['broker-b']}/readyz")
        assert answer.status_code == 200


async def test_data_in_a_directory_of_ones_own_outlives_the_cluster(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    async with LocalCluster(data_dir=tmp_path, settings=SMALL) as cluster:
        url = cluster.broker_urls["broker-a"]
        created = await client.put(f"{url}/v1/topics/kept", json={"write_queue_count": 1})
        assert created.status_code == 201

    async with LocalCluster(data_dir=tmp_path, settings=SMALL) as cluster:
        url = cluster.broker_urls["broker-a"]
        assert (await client.get(f"{url}/v1/topics/kept")).status_code == 200


async def test_a_replica_takes_over_and_a_second_start_finds_the_group_again(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    settings = {**SMALL, "ERUCA_CONTROLLER_STORE": "file"}
    async with LocalCluster(data_dir=tmp_path, replicas=2, settings=settings) as cluster:
        master = (await cluster.masters())["broker-a"]
        url = cluster.broker_urls[master]
        sent = await client.post(
            f"{url}/v1/topics/orders/messages", json={"body": {"text": "order 17"}}
        )
        assert sent.json()["copies"] == 2

        await cluster.kill(master)

        await until_told(cluster.masters, lambda masters: masters["broker-a"] != master)
        epoch = (await cluster.groups())["broker-a"].epoch
        assert epoch > 1
        await cluster.restart(master)

    with pytest.raises(PlanError, match="have replicas; give --replicas 2"):
        await LocalCluster(data_dir=tmp_path, settings=SMALL).start()
    async with LocalCluster(data_dir=tmp_path, replicas=2, settings=settings) as cluster:
        group = (await cluster.groups())["broker-a"]
        assert group.epoch > epoch
        assert len(group.in_sync) == 2
        url = cluster.broker_urls[(await cluster.masters())["broker-a"]]
        queue = f"{url}/v1/topics/orders/queues/{sent.json()['queue_id']}/messages"
        pulled = await client.get(queue, params={"offset": 0})
        assert [m["body"]["text"] for m in pulled.json()["messages"]] == ["order 17"]


async def test_a_directory_that_could_not_be_prepared_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "broker-a").touch()
    cluster = LocalCluster(data_dir=tmp_path, settings=SMALL)
    with pytest.raises(StartError, match="cannot be created"):
        await cluster.start()
    (tmp_path / "broker-a").unlink()

    async with LocalCluster(data_dir=tmp_path, settings=SMALL) as again:
        assert again.broker_urls


async def test_two_clusters_cannot_share_one_directory(tmp_path: Path) -> None:
    table = tmp_path / "namesrv-1" / "kv.json"
    async with LocalCluster(data_dir=tmp_path, settings=SMALL):
        table.write_text("it is not to be touched")
        with pytest.raises(DataTakenError, match=rf"in use by process {os.getpid()} \(.*; stop it"):
            await LocalCluster(data_dir=tmp_path, settings=SMALL, namesrvs=2).start()

        assert table.read_text() == "it is not to be touched"
        assert not (tmp_path / "namesrv-2").exists()
        table.unlink()
    async with LocalCluster(data_dir=tmp_path, settings=SMALL):
        pass  # it is free again
