"""A console under test, over a cluster in this process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import eruca
from eruca_console.app import create_app
from eruca_console.settings import ConsoleSettings
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.services import client_of


@dataclass(frozen=True, slots=True)
class Visited:
    """A console and its cluster.

    Attributes:
        cluster: The cluster.
        http: A browser, as far as HTTP goes.
        client: The cluster's, for what the pages are to show.
    """

    cluster: InProcessCluster
    http: httpx.AsyncClient
    client: eruca.AsyncClient

    async def act(self, path: str, **fields: str) -> httpx.Response:
        """Send the form of a page with *fields*, and return the answer."""
        token = re.search(r'name="csrf" value="([^"]+)"', await self.page(path))
        assert token is not None
        return await self.http.post(path, data={"csrf": token[1], **fields})

    async def page(self, path: str) -> str:
        """Return a page."""
        answer = await self.http.get(path)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.text


async def begin(client: eruca.AsyncClient, topic: str, transaction_id: str) -> None:
    """Leave a transaction at broker-a undecided."""
    queue = eruca.MessageQueue(topic, "broker-a", 0)
    message = eruca.Message(topic, b'{"total": 1.10}', message_id=transaction_id)
    async with client.transaction_producer("shop") as producer:
        await producer.send_in_transaction(message, lambda half: "unknown", queue=queue)


@asynccontextmanager
async def visited_in(directory: Path, **settings: Any) -> AsyncIterator[Visited]:  # noqa: ANN401
    """Yield a console of a new cluster of two brokers; *settings* are the console's."""
    async with in_process_cluster(directory, brokers=2) as cluster:
        urls = ";".join(cluster.namesrv_urls)
        app = create_app(ConsoleSettings(port=0, namesrv_urls=urls, **settings))
        async with eruca.AsyncClient(urls) as client, client_of(app) as http:
            http.headers["accept"] = "text/html"
            yield Visited(cluster, http, client)
