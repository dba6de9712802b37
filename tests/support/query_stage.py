"""A cluster whose query services, brokers and PostgreSQL are killed, and what must be so then.

Whatever was killed when: each message that was acknowledged has one row, and is found once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import anyio.to_thread
import httpx
from sqlalchemy import NullPool, create_engine, text

import eruca
from eruca_deploy.cluster import LocalCluster
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.projection.tables import SCHEMA
from eruca_testing import SMALL_STORE
from support.patience import PATIENCE_SECONDS
from support.postgres import drop_schema, kill_server
from support.waiting import until_told

TOPIC: Final = "flights"
PAGE: Final = 1_000
SMALL: Final = {
    **SMALL_STORE,
    "ERUCA_QUERY_READ_BYTES": "65536",  # bytes: many transactions, so that a kill is within one
    "ERUCA_QUERY_CHUNK_ROWS": "3000",  # and some partitions
    "ERUCA_QUERY_CLAIM_SECONDS": "2",
    "ERUCA_BROKER_HEARTBEAT_SECONDS": "1",
}
_ROWS: Final = text(
    "SELECT count(*), count(DISTINCT (m.broker_no, m.log_offset)), count(DISTINCT m.unique_id) "
    "FROM messages m JOIN names n ON n.name_no = m.topic_no JOIN chunks c USING (chunk) "
    "JOIN generations g ON g.broker_no = c.broker_no AND g.generation = c.generation "
    "WHERE g.is_serving AND m.key_no = 0 AND n.name = :topic"
)


class RowCounts(NamedTuple):
    """Row counts of a topic in the read model."""

    rows: int
    places: int  # that are different
    unique_ids: int


@dataclass(slots=True)
class QueryStage:
    """Everything, and clients of it."""

    cluster: LocalCluster
    server: EmbeddedServer
    client: eruca.AsyncClient
    services: dict[str, httpx.AsyncClient] = field(default_factory=dict)  # by process

    @property
    def query(self) -> httpx.AsyncClient:
        """The first query service."""
        return self.services["query"]

    async def send(self, count: int, *, topic: str = TOPIC, size: int = 200) -> list[str]:
        """Send messages to all brokers; return their ids when they are acknowledged."""
        body = bytes(size)
        async with self.client.producer(compression_threshold_bytes=None) as producer:
            sent = await producer.send_many([eruca.Message(topic, body) for _ in range(count)])
        return [result.message_id for result in sent]

    async def get(self, path: str, *, service: str = "query", **params: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return a good answer."""
        answer = await self.services[service].get(path, params=params)
        assert answer.status_code == httpx.codes.OK, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def read_offsets(self, service: str = "query") -> dict[str, int]:
        """Return how far each log has been read; nothing while that is unknown."""
        try:
            answer = await self.services[service].get("/v1/status")
        except httpx.TransportError:
            return {}
        if answer.status_code != httpx.codes.OK:
            return {}
        return {its["broker_name"]: its["log_offset"] or 0 for its in answer.json()["followed"]}

    async def log_ends(self) -> dict[str, int]:
        """Return where each broker's log ends."""
        return {
            name: (await self.client.admin.broker_status(name)).log.max_offset
            for name in self.cluster.broker_urls
        }

    async def until_read(self, share: float, service: str = "query") -> None:
        """Return once *share* of what has not been read yet has been."""
        ends, offsets = await self.log_ends(), await self.read_offsets(service)
        read, end = sum(offsets.values()), sum(ends.values())
        wanted = read + share * (end - read)
        await until_told(
            lambda: self.read_offsets(service),
            lambda offsets: sum(offsets.values()) >= wanted,
        )

    async def caught_up(self, service: str = "query") -> None:
        """Return once all that is in the logs now has been read, and nothing is being rebuilt."""
        ends = await self.log_ends()
        await until_told(
            lambda: self.read_offsets(service),
            lambda offsets: all(offsets.get(name, 0) >= end for name, end in ends.items()),
        )

    async def rebuilt(self, service: str = "query") -> None:
        """Return once nothing is being rebuilt."""
        await until_told(
            lambda: self.get("/v1/status", service=service),
            lambda status: all(its["rebuild"] is None for its in status["followed"]),
        )

    async def ids(self, *, topic: str = TOPIC, service: str = "query") -> list[str]:
        """Return the ids of all messages of a topic, page by page."""
        found: list[str] = []
        cursor = None
        while True:
            query = {"topic": topic, "limit": PAGE} | ({} if cursor is None else {"cursor": cursor})
            page = await self.get("/v1/messages", service=service, **query)
            assert page["incomplete"] == []
            found += [message["message_id"] for message in page["messages"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    async def check(
        self, sent: Sequence[str], *, topic: str = TOPIC, service: str = "query"
    ) -> None:
        """Fail unless each message that was sent has one row, and is found once."""
        await self.caught_up(service)
        counts = await anyio.to_thread.run_sync(self._counts, topic)
        assert counts == RowCounts(len(sent), len(sent), len(sent))
        assert sorted(await self.ids(topic=topic, service=service)) == sorted(sent)

    async def kill_postgres(self) -> None:
        """Kill PostgreSQL."""
        await anyio.to_thread.run_sync(kill_server, self.server)

    async def start_postgres(self) -> None:
        """Start it again."""
        await anyio.to_thread.run_sync(self.server.start)

    def lose_all_rows(self) -> None:
        """Drop everything that the query services have made."""
        drop_schema(self.server.url, SCHEMA)

    def _counts(self, topic: str) -> RowCounts:
        engine = create_engine(
            sqlalchemy_url(self.server.url),
            poolclass=NullPool,
            connect_args={"options": f"-c search_path={SCHEMA}"},
        )
        with engine.begin() as connection:
            return RowCounts(*connection.execute(_ROWS, {"topic": topic}).one())


@asynccontextmanager
async def query_stage(
    server: EmbeddedServer,
    *,
    brokers: int = 1,
    queries: int = 1,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[QueryStage]:
    """Yield a cluster over a PostgreSQL that runs, whose schema is emptied.

    Args:
        server: Where the rows are.
        brokers: How many.
        queries: How many query services share them.
        settings: Above those that keep everything small.
    """
    drop_schema(server.url, SCHEMA)
    cluster = LocalCluster(
        brokers=brokers,
        queries=queries,
        settings={**SMALL, "DATABASE_URL": server.url, **(settings or {})},
        restarts=False,
        start_seconds=PATIENCE_SECONDS,
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster)
        client = await stack.enter_async_context(eruca.AsyncClient(cluster.namesrv_urls))
        stage = QueryStage(cluster, server, client)
        for service in cluster.plan.queries:
            stage.services[service.name] = await stack.enter_async_context(
                httpx.AsyncClient(base_url=service.url, trust_env=False)
            )
        await client.admin.create_topic(TOPIC, queue_count=2)
        yield stage
