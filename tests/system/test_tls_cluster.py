"""A cluster with TLS, rules and keys: services among each other, clients, exports, the doctor."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import eruca
from eruca_deploy.certificates import made_certificates
from eruca_deploy.cluster import LocalCluster
from support.processes import clean_environment

pytestmark = pytest.mark.anyio
BODY = os.urandom(400_000)
COUNT = 20


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=1, txn_checkers=1, queries=1, is_secure=True) as cluster:
        yield cluster


async def command(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "eruca", *arguments],
        env={
            **clean_environment(),
            **cluster.client_environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_clients_send_consume_and_search_over_tls(cluster: LocalCluster) -> None:
    assert all(url.startswith("https://") for url in (*cluster.namesrv_urls, *cluster.query_urls))
    files = eruca.TlsFiles(ca_file=cluster.ca_file)
    assert cluster.keys is not None
    key = eruca.ApiKeyFile(cluster.keys.administrator_file)
    async with eruca.AsyncClient(cluster.namesrv_urls, tls_files=files, credentials=key) as client:
        await client.admin.create_topic("orders")
        async with client.producer() as producer:
            messages = [eruca.Message("orders", BODY, keys=str(n)) for n in range(COUNT)]
            await producer.send_many(messages)
        got: list[eruca.ReceivedMessage] = []
        async with client.pull_consumer(topics=["orders"], start="earliest") as consumer:
            while len(got) < COUNT:
                got += await consumer.poll(wait_seconds=20)

    assert {message.body for message in got} == {BODY}
    assert sorted(int(key) for message in got for key in message.keys) == list(range(COUNT))


async def test_an_export_passes_through_the_service(cluster: LocalCluster, tmp_path: Path) -> None:
    await command(cluster, "topic", "create", "exported")
    for number in range(3):
        await command(cluster, "send", "--topic", "exported", f"message {number}")

    done = await command(cluster, "export", "exported", "--to", str(tmp_path / "out.ndjson"))

    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert len(lines) == 3


async def test_the_doctor_knows_until_when_certificates_are_valid(cluster: LocalCluster) -> None:
    done = await command(cluster, "-o", "json", "doctor")

    findings = json.loads(done.stdout)["findings"]
    of_certificates = [f for f in findings if f["check"] == "certificate"]
    assert len(of_certificates) == 4  # name server, broker, checker, query service
    assert {f["verdict"] for f in of_certificates} == {"ok"}


async def test_the_doctor_sees_that_all_services_have_the_same_rules(
    cluster: LocalCluster,
) -> None:
    done = await command(cluster, "-o", "json", "doctor")

    findings = json.loads(done.stdout)["findings"]
    of_rules = [f for f in findings if "rules" in (f["subject"], f["check"])]
    assert {f["verdict"] for f in of_rules} == {"ok"}, of_rules
    assert {f["check"] for f in of_rules} == {"rules", "agreement", "keys"}
    assert len([f for f in of_rules if f["check"] == "rules"]) == 4


async def test_a_client_that_trusts_another_authority_is_told_so(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    other = made_certificates(tmp_path)
    files = eruca.TlsFiles(ca_file=other.ca_file)
    async with eruca.AsyncClient(cluster.namesrv_urls, tls_files=files) as client:
        with pytest.raises(eruca.NameServersUnreachableError, match="certificate verify failed"):
            await client.admin.list_topics()


async def test_a_client_that_speaks_plain_http_is_told_to_write_https(
    cluster: LocalCluster,
) -> None:
    urls = [url.replace("https:", "http:") for url in cluster.namesrv_urls]
    async with eruca.AsyncClient(urls) as client:
        with pytest.raises(eruca.ErucaError) as caught:
            await client.admin.list_topics()

    assert "https://" in str(caught.value)


async def test_certificates_are_kept_and_their_keys_are_private(tmp_path: Path) -> None:
    first = made_certificates(tmp_path)
    content = first.cert_file.read_bytes()

    again = made_certificates(tmp_path)

    assert (again, again.cert_file.read_bytes()) == (first, content)
    assert oct(first.key_file.stat().st_mode)[-3:] == "600"
    assert oct((tmp_path / "tls" / "ca.key").stat().st_mode)[-3:] == "600"
