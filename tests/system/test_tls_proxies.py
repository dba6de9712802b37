"""The snippets of ``deploy/tls``: TLS by a proxy, the services behind it on Unix sockets."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from eruca_deploy.ports import free_ports
from support.authority import Authority
from support.postgres import reachable_directory
from support.processes import ServiceProcess, clean_environment, running
from support.tls_proxies import PROXIES, Proxy, moved
from support.waiting import wait_until

COUNT = 3


@dataclass(frozen=True)
class Cluster:
    """A name server, and behind a proxy a broker and a query service."""

    namesrv_url: str
    broker_url: str
    query_url: str
    ca_file: Path
    broker: ServiceProcess

    def eruca(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line."""
        environment = {
            **clean_environment(),
            "ERUCA_NAMESRV_URLS": self.namesrv_url,
            "ERUCA_TLS_CA_FILE": str(self.ca_file),
        }
        command = [sys.executable, "-m", "eruca", *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: proxy.program)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    proxy: Proxy = request.param
    if shutil.which(proxy.program) is None:
        pytest.skip(f"{proxy.program} is not installed")
    folder = tmp_path_factory.mktemp(proxy.program)
    authority = Authority(folder)
    pair = authority.pair("127.0.0.1")
    broker_port, query_port = free_ports("127.0.0.1", 2)
    config = folder / proxy.snippet
    config.write_text(moved(proxy.snippet, folder, pair, broker_port, query_port))
    broker_url, query_url = (f"https://127.0.0.1:{port}" for port in (broker_port, query_port))
    common = {"ERUCA_TLS_CA_FILE": str(authority.ca_file), "ERUCA_AUTH": "open"}
    with ExitStack() as stack:
        reachable = stack.enter_context(reachable_directory())
        namesrv = stack.enter_context(
            running(
                "eruca_namesrv", {"ERUCA_NAMESRV_PORT": "0", "ERUCA_NAMESRV_SETTLE_SECONDS": "0"}
            )
        )
        started = subprocess.Popen(proxy.command(config, folder), stderr=subprocess.DEVNULL)
        stack.callback(started.wait)
        stack.callback(started.terminate)
        broker = stack.enter_context(
            running(
                "eruca_broker",
                {
                    **common,
                    "ERUCA_BROKER_LISTEN": f"unix:{folder}/broker.sock",
                    "ERUCA_BROKER_LISTEN_PEER": proxy.peer,
                    "ERUCA_BROKER_ADVERTISED_URL": broker_url,
                    "ERUCA_BROKER_NAMESRV_URLS": namesrv.url,
                    "ERUCA_BROKER_STORE_DIR": str(folder / "store"),
                },
            )
        )
        query = stack.enter_context(
            running(
                "eruca_query",
                {
                    **common,
                    "ERUCA_QUERY_LISTEN": f"unix:{folder}/query.sock",
                    "ERUCA_QUERY_LISTEN_PEER": proxy.peer,
                    "ERUCA_QUERY_ADVERTISED_URL": query_url,
                    "ERUCA_QUERY_NAMESRV_URLS": namesrv.url,
                    "ERUCA_QUERY_POSTGRES_DIR": str(reachable / "postgres"),
                },
            )
        )
        stack.callback(query.stop)  # it stops its PostgreSQL
        made = Cluster(namesrv.url, broker_url, query_url, authority.ca_file, broker)
        wait_until(lambda: is_known(made))
        yield made


def is_known(cluster: Cluster) -> bool:
    """Return whether both services answer through the proxy, and the name server knows them."""
    try:
        ready = [
            curl(cluster, f"{url}/readyz", code=True)
            for url in (cluster.broker_url, cluster.query_url)
        ]
        entries = httpx.get(f"{cluster.namesrv_url}/v1/kv/ERUCA_QUERY_SERVICES").text
        brokers = httpx.get(f"{cluster.namesrv_url}/v1/brokers").text
    except httpx.HTTPError:
        return False
    return (
        ready == ["200", "200"] and cluster.query_url in entries and cluster.broker_url in brokers
    )


def curl(cluster: Cluster, url: str, *options: str, code: bool = False) -> str:
    """Return what curl gets, or the status code."""
    shown = ["--output", "/dev/null", "--write-out", "%{http_code}"] if code else []
    command = ["curl", "--silent", "--cacert", str(cluster.ca_file), *shown, *options, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


def test_messages_pass_in_both_directions_and_into_an_export(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.eruca("topic", "create", "orders", "--queue-count", "1")
    for number in range(COUNT):
        cluster.eruca("send", "--topic", "orders", f"order {number}")
    pulled = cluster.eruca(
        "-o", "json", "pull", "orders", "--count", str(COUNT), "--start", "earliest"
    )
    file = tmp_path / "out.ndjson"

    cluster.eruca("export", "orders", "--to", str(file))

    messages = [json.loads(line) for line in pulled.stdout.splitlines()]
    assert len(messages) == COUNT
    # A broker that knows nothing of its client would write zeros.
    assert {message["born_host"].rpartition(":")[0] for message in messages} == {"127.0.0.1"}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == COUNT


def test_a_pull_is_held_until_a_message_comes(cluster: Cluster) -> None:
    cluster.eruca("topic", "create", "late", "--queue-count", "1")
    target = f"{cluster.broker_url}/v1/topics/late/queues/0/messages?offset=0&wait_seconds=20"
    held = subprocess.Popen(
        ["curl", "--silent", "--cacert", str(cluster.ca_file), target],
        stdout=subprocess.PIPE,
        text=True,
    )
    cluster.eruca("send", "--topic", "late", "here it is")

    output, _ = held.communicate(timeout=60)

    assert "here it is" in output


def test_curl_verifies_the_certificate(cluster: Cluster) -> None:
    trusting = curl(cluster, f"{cluster.broker_url}/readyz", code=True)
    stranger = subprocess.run(
        ["curl", "--silent", f"{cluster.broker_url}/readyz"], capture_output=True, check=False
    )

    assert trusting == "200"
    assert stranger.returncode == 60  # curl's code of a certificate that it cannot verify
