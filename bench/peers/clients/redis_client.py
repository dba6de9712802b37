"""Redis streams through redis-py: ``python -m bench.peers.clients.redis_client PORT``."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import redis
import redis.asyncio

from bench.peers.clients.workload import (
    BACKLOG,
    BATCH,
    BODY,
    HANDLED,
    IN_FLIGHT,
    POLLED,
    SENT,
    Client,
    Counter,
    serve,
    together,
)

_BLOCK_MS: Final = 1_000


class RedisClient(Client):
    """A blocking client, the fastest for one call at a time, and a pool for 64 tasks."""

    def __init__(self) -> None:
        self._keys = count()

    async def open(self, address: str) -> None:
        """Connect to the servers at *address*."""
        self._redis = redis.Redis(port=int(address))
        self._redis.ping()
        self._pool = redis.asyncio.Redis(port=int(address), max_connections=IN_FLIGHT)

    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""
        self._redis.xadd(SENT, self._fields())

    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""
        pipeline = self._redis.pipeline(transaction=False)
        for _ in range(BATCH):
            pipeline.xadd(target, self._fields())
        pipeline.execute()

    async def many(self, ends_at: float) -> int:
        """Send with 64 tasks until the time is up; return the number of messages."""
        return await together(self._send_by_pool, ends_at)

    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Read the backlog as a new group from its beginning until the counter has ended."""
        self._redis.xgroup_create(BACKLOG, group, id="0")
        count_max = HANDLED if row == "handlers32" else POLLED
        while not counter.ended.is_set():
            answer: Any = self._redis.xreadgroup(
                group, "member", {BACKLOG: ">"}, count=count_max, block=_BLOCK_MS
            )
            for _, messages in answer.items() if isinstance(answer, dict) else answer:
                entries = messages[0] if isinstance(answer, dict) else messages
                if row == "handler":
                    for _, fields in entries:
                        await counter.handle(fields[b"body"])
                else:
                    await counter.handle_all([fields[b"body"] for _, fields in entries])
                self._redis.xack(BACKLOG, group, *[entry for entry, _ in entries])

    async def _send_by_pool(self) -> None:
        await self._pool.xadd(SENT, self._fields())

    def _fields(self) -> dict[Any, Any]:
        return {"body": BODY, "key": f"key-{next(self._keys)}"}


if __name__ == "__main__":
    serve(RedisClient())
