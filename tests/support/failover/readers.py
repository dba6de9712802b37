"""Readers that no master needs to serve: followers of the log, exports, and the query service."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Final

import httpx

import eruca
from eruca.contract.exports import ExportPlan
from support.failover.senders import Senders
from support.failover.works import Work
from support.waiting import until

BROKER: Final = "broker-a"


class LogReader(Work):
    """Reads the log, from a standby if there is one.

    Args:
        client: Of the cluster.
        prefers_replica: Whether it prefers a standby.
    """

    def __init__(self, client: eruca.AsyncClient, *, prefers_replica: bool) -> None:
        super().__init__()
        self.read: list[tuple[int, int]] = []  # log offset and size of each record
        self._client = client
        self._prefers_replica = prefers_replica

    async def run(self) -> None:
        async with self._client.log_follower(
            BROKER, prefers_replica=self._prefers_replica
        ) as follower:
            reading = asyncio.create_task(self._read(follower))
            await asyncio.wait(
                {reading, asyncio.create_task(self.is_over.wait())},
                return_when=asyncio.FIRST_COMPLETED,
            )
            end = (await self._client.admin.broker_status(BROKER)).log.max_offset
            await until(lambda: reading.done() or (follower.next_offset or 0) >= end)
            await follower.close()
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.result()

    async def _read(self, follower: eruca.AsyncLogFollower) -> None:
        async for record in follower:
            self.read.append((record.log_offset, record.size))
            self.progress += 1


@dataclass(slots=True)
class Export:
    """One export that was answered to its end."""

    planned: int  # rows
    texts: list[str]
    acknowledged: set[str]  # before its plan was requested


class Exports(Work):
    """Exports a topic again and again, as a client of the query service without a retry policy.

    Args:
        query_url: Of the query service.
        senders: Whose messages it exports.
        topic: Their topic.
    """

    def __init__(self, query_url: str, senders: Senders, topic: str) -> None:
        super().__init__()
        self.ended: list[Export] = []
        self.broken = 0  # exports that were refused or cut
        self._url = f"{query_url}/v1/exports/{topic}"
        self._senders = senders

    async def run(self) -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            while not self.is_over.is_set():
                await self._export(http)
            while not (self.ended and self.ended[-1].acknowledged == {*self._senders.acknowledged}):
                await self._export(http)

    async def _export(self, http: httpx.AsyncClient) -> None:
        acknowledged = {*self._senders.acknowledged}
        try:
            answer = await http.get(f"{self._url}/plan")
            answer.raise_for_status()
            plan = ExportPlan.model_validate_json(answer.content)
            rows = []
            for partition in plan.partitions:
                answer = await http.get(
                    f"{self._url}/records",
                    params={"range": [one.text for one in partition.ranges], "columns": "body"},
                    headers={"accept": "application/x-ndjson"},
                )
                answer.raise_for_status()
                rows += [json.loads(line) for line in answer.text.splitlines()]
        except httpx.HTTPError:
            self.broken += 1
            await self.pause()
            return
        texts = [row["body"]["text"] for row in rows]
        self.ended.append(Export(plan.rows, texts, acknowledged))
        self.progress += 1
        await self.pause()
