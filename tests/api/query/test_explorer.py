"""The query service's ``/docs`` shows the cluster's services, as far as somebody knows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eruca
from eruca import AsyncClient
from eruca.contract.names import CHECKERS_NAMESPACE
from eruca_query.app import create_app
from eruca_query.explorer.listing import list_services
from eruca_query.settings import QuerySettings
from support.in_process_cluster import in_process_cluster
from support.services import client_of

pytestmark = pytest.mark.anyio


async def test_brokers_and_checkers_are_those_that_the_name_servers_know(tmp_path: Path) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=2) as cluster,
        AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.put_kv(CHECKERS_NAMESPACE, "checker-1", "http://127.0.0.1:10921")

        explored = await list_services(client)

    assert dict(explored.services) == {
        **cluster.broker_urls,
        "namesrv": cluster.namesrv_urls[0],
        "checker-1": "http://127.0.0.1:10921",
        "query": "",
    }
    assert explored.note == ""


async def test_without_a_name_server_the_page_shows_what_is_known_and_says_why() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        explored = await list_services(client)

    assert dict(explored.services) == {"namesrv": "http://127.0.0.1:1", "query": ""}
    assert explored.note.startswith("No name server lists the brokers and transaction checkers")


async def test_the_page_may_call_every_service_it_shows(tmp_path: Path) -> None:
    async with in_process_cluster(tmp_path, brokers=1) as cluster:
        without_database = {"DATABASE_URL": "postgresql://127.0.0.1:1/none"}
        app = create_app(
            QuerySettings.model_validate(
                {"namesrv_urls": cluster.namesrv_urls[0], **without_database}
            )
        )
        async with client_of(app) as client:
            page = await client.get("/docs")

    [connect] = re.findall(r"connect-src ([^;]*);", page.headers["content-security-policy"])
    shown = ["'self'", *cluster.broker_urls.values(), *cluster.namesrv_urls]
    assert connect == " ".join(shown)


async def test_what_is_set_for_clients_is_not_meant_for_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ERUCA_NAMESRV_URLS", "http://127.0.0.1:1")
    monkeypatch.setenv("ERUCA_NETWORK", "inside")
    monkeypatch.setenv("ERUCA_TIMEOUT_SECONDS", "soon")
    settings = QuerySettings.model_validate({"DATABASE_URL": "postgresql://127.0.0.1:1/none"})
    app = create_app(settings)

    async with client_of(app):
        client_settings = app.parts[eruca.AsyncClient].settings

    assert client_settings.namesrv_urls == (settings.namesrv_urls,)
    assert client_settings.network == "default"
