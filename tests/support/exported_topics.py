"""Topics of an in-process cluster that are exported: messages sent, plans, and problems."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import eruca
from eruca.contract.exports import ExportPlan
from support.exports import ExportService, export_service
from support.in_process_cluster import InProcessCluster, in_process_cluster


@asynccontextmanager
async def exports(
    directory: Path,
    *,
    brokers: int = 1,
    broker_settings: dict[str, Any] | None = None,
    **settings: Any,  # noqa: ANN401 - those of QuerySettings
) -> AsyncIterator[tuple[InProcessCluster, ExportService]]:
    async with (
        in_process_cluster(directory, brokers=brokers, **broker_settings or {}) as cluster,
        export_service(cluster, **settings) as service,
    ):
        yield cluster, service


async def send(
    service: ExportService, topic: str, count: int, *, body: str = "", first: int = 0
) -> None:
    """Send messages that count up, dealt out to three queues on each broker."""
    await service.client.admin.create_topic(topic, queue_count=3)
    messages = [
        eruca.Message(
            topic,
            f"{number} {body}",
            tag=f"tag-{number % 3}",
            keys=[f"key-{number}", "all"],
            properties={"number": str(number)},
        )
        for number in range(first, first + count)
    ]
    queues = sorted(await service.client.admin.queues(topic))
    async with service.client.producer() as producer:
        for index, queue in enumerate(queues):
            if share := messages[index :: len(queues)]:
                await producer.send_many(share, queue=queue)


def ranges_of(plan: ExportPlan) -> list[str]:
    return [a_range.text for partition in plan.partitions for a_range in partition.ranges]
