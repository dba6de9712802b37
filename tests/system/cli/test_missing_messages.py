"""Messages that a replica lacks, counted in a real log."""

from __future__ import annotations

from pathlib import Path

import pytest

import eruca
from eruca.cli.replicas import missing_messages as module
from eruca.cli.replicas.missing_messages import MissingMessages, missing_messages
from support.in_process_cluster import in_process_cluster

pytestmark = pytest.mark.anyio


async def test_messages_are_counted_from_one_log_offset_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        [url] = cluster.broker_urls.values()
        transport = client.context.transport
        await client.admin.create_topic("orders", queue_count=1)
        async with client.producer() as producer:
            sent = [await producer.send(eruca.Message("orders", str(n))) for n in range(5)]
        await client.admin.create_topic("others")  # events, which are no messages
        end = (await client.admin.broker_status("broker-a")).log.max_offset
        second = sent[1].log_offset

        assert await missing_messages(transport, url, second, end) == MissingMessages(
            4, is_all=True
        )
        assert await missing_messages(
            transport, url, second, sent[3].log_offset
        ) == MissingMessages(2, is_all=True)
        assert await missing_messages(transport, url, second + 1, end) is None  # another log
        assert await missing_messages(transport, url, second, end + 1_000) == MissingMessages(
            4, is_all=False
        )

        monkeypatch.setattr(module, "COUNTED_BYTES_MAX", 1)
        counted = await missing_messages(transport, url, second, end + 1_000)
        assert counted is not None
        assert not counted.is_all
    assert await missing_messages(transport, url, second, end) is None
