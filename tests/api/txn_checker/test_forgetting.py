"""A broker that was taken away for good is forgotten when somebody says so, by all instances."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import func, select

from eruca_broker.app import create_app
from eruca_namesrv.app import create_app as create_namesrv_app
from eruca_namesrv.settings import NamesrvSettings
from eruca_postgres.database import Database
from eruca_txn_checker.projection.tables import checks, transactions
from support.checkers import Checked, checked_by
from support.in_process_cluster import InProcessCluster, small_broker
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio
GONE = "/v1/brokers/broker-a"


async def stopped(cluster: InProcessCluster, checked: Checked) -> None:
    """Stop the broker, and wait until the checker says so."""
    await cluster.take_broker_away("broker-a")
    await until_told(
        lambda: checked.http.get("/metrics"),
        lambda answer: 'eruca_txn_checker_fault{broker="broker-a"} 1.0' in answer.text,
    )


async def kept_rows(checked: Checked) -> tuple[int, int]:
    """Return how many transactions and checks there are, whether or not they are shown."""
    async with checked.app.parts[Database].transaction() as connection:
        counts = [
            await connection.scalar(select(func.count()).select_from(table))
            for table in (transactions, checks)
        ]
    return counts[0] or 0, counts[1] or 0


async def test_its_transactions_are_gone_and_no_instance_works_on_it(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url) as one:
        await one.seen(await one.begin(), lambda shown: shown["checks_sent"])
        refused = await one.http.delete(GONE)
        await stopped(cluster, one)

        forgotten = await one.http.delete(GONE)
        listed = (await one.http.get("/v1/transactions")).json()
        status = (await one.http.get("/v1/status")).json()
        again = await one.http.delete(GONE)

        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert forgotten.status_code == httpx.codes.NO_CONTENT
        assert listed["transactions"] == status["followed"] == []
        assert (again.status_code, again.json()["code"]) == (404, "broker-not-found")
        await until_told(lambda: kept_rows(one), lambda rows: rows == (0, 0))
        await until_told(
            lambda: one.http.get("/metrics"),
            lambda answer: 'broker="broker-a"' not in answer.text,
        )


async def test_one_that_comes_back_is_followed_from_the_beginning_of_its_log(
    cluster: InProcessCluster, database_url: str, tmp_path: Path
) -> None:
    async with checked_by(cluster, database_url, checks_max=100) as checked:
        transaction_id = await checked.begin()
        await checked.seen(transaction_id)
        await stopped(cluster, checked)
        assert (await checked.http.delete(GONE)).status_code == httpx.codes.NO_CONTENT
        settings = small_broker("broker-a", cluster.namesrv_urls, tmp_path / "broker-a")

        async with serving(create_app(settings), settings):
            found = await until_told(
                lambda: checked.http.get(f"/v1/transactions/{transaction_id}"),
                lambda answer: answer.status_code == httpx.codes.OK,
            )

    assert found.json()["state"] == "pending"


async def test_a_name_server_that_has_just_started_does_not_say_that_a_broker_is_gone(
    cluster: InProcessCluster, checked: Checked
) -> None:
    transaction_id = await checked.begin()
    await checked.seen(transaction_id)
    await cluster.take_broker_away("broker-a")
    await cluster.stop_name_servers()
    port = urlsplit(cluster.namesrv_urls[0]).port or 0
    settings = NamesrvSettings(expected_brokers="broker-a", settle_seconds=600)

    async with serving(create_namesrv_app(settings), settings, port=port):
        refused = await checked.http.delete(GONE)

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert "has just started" in refused.json()["detail"]
    assert await checked.seen(transaction_id)


async def test_where_it_cannot_be_told_whether_a_broker_is_gone_nothing_is_forgotten(
    cluster: InProcessCluster, checked: Checked
) -> None:
    transaction_id = await checked.begin()
    await checked.seen(transaction_id)
    never = await checked.http.delete("/v1/brokers/broker-z")
    await cluster.stop_name_servers()

    refused = await checked.http.delete(GONE)

    assert (never.status_code, never.json()["code"]) == (404, "broker-not-found")
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert await checked.seen(transaction_id)
