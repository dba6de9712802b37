"""The pods of the Helm chart's small set, as processes on this machine: ready, and at work.

Commands, variables and probes are the rendered ones. Names of pods become addresses of the
loopback, and each volume a directory.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
import pytest

import eruca
from eruca_deploy.ports import free_ports
from support.containerfile import stages
from support.documents import ROOT
from support.helm_chart import NAMESPACE, kept, of_kind, pods
from support.processes import ServiceProcess, clean_environment
from support.waiting import wait_until

STAGES = stages(ROOT / "deploy" / "images" / "Containerfile")


class Pod(NamedTuple):
    """A pod that runs as a process."""

    url: str
    process: ServiceProcess
    container: dict[str, Any]

    def is_ready(self) -> bool:
        probe = self.container["readinessProbe"]["httpGet"]
        return httpx.get(f"{self.url}{probe['path']}").status_code == 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, Pod]]:
    """All pods of the set, by their services' names, started together as Kubernetes does."""
    stateful_sets = [*of_kind(kept("small"), "StatefulSet")]
    environments = {pod: (s, env) for s in stateful_sets for pod, env in pods(s)}
    ports = dict(zip(environments, free_ports("127.0.0.1", len(environments)), strict=True))
    with ExitStack() as stack:
        # The user of an embedded PostgreSQL can always reach it; it cannot reach pytest's.
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="eruca-pods-")))
        running: dict[str, Pod] = {}
        for name, (stateful, environment) in environments.items():
            [container] = stateful["spec"]["template"]["spec"]["containers"]
            stage = STAGES[container["name"]]
            home = folder / name
            home.mkdir()
            settings = {
                key: _here(value, ports, home)
                for key, value in {**stage.environment, **environment}.items()
                if key.startswith("ERUCA_")
            }
            prefix = f"ERUCA_{container['name'].upper().replace('-', '_')}"
            settings |= {f"{prefix}_HOST": "127.0.0.1", f"{prefix}_PORT": str(ports[name])}
            process = subprocess.Popen(
                [Path(sys.executable).with_name(stage.entrypoint[0]), *stage.entrypoint[1:]],
                env={**clean_environment(), **settings},
                cwd=home,
                stderr=subprocess.PIPE,
                text=True,
            )
            url = f"http://127.0.0.1:{ports[name]}"
            service = stack.enter_context(ServiceProcess(process))
            running[container["name"]] = Pod(url, service, container)
        for pod in running.values():
            pod.process.wait_until_listening()
            wait_until(pod.is_ready)
        yield running
        for pod in running.values():
            assert pod.process.stop() == 0


def _here(value: str, ports: dict[str, int], home: Path) -> str:
    """Return a variable's value with this machine's addresses and directories."""
    for name, port in ports.items():
        pattern = rf"{name}\.[\w-]+\.{NAMESPACE}\.svc\.cluster\.local:\d+"
        value = re.sub(pattern, f"127.0.0.1:{port}", value)
    return value.replace("/var/lib/eruca", str(home))


def test_every_pod_is_ready(cluster: dict[str, Pod]) -> None:
    assert {*cluster} == {"namesrv", "broker", "txn-checker", "query", "console"}
    assert all(pod.is_ready() for pod in cluster.values())


def test_a_message_is_found_by_the_query_service(cluster: dict[str, Pod]) -> None:
    with eruca.Client(cluster["namesrv"].url) as client:
        with client.producer() as producer:
            producer.send(eruca.Message("orders", "order 17", keys="order-17"))
        with client.pull_consumer(topics="orders", start="earliest") as consumer:
            [message] = wait_until(lambda: consumer.poll(wait_seconds=1))

    assert message.text() == "order 17"
    query = {"topic": "orders", "key": "order-17"}
    found = wait_until(lambda: answer(f"{cluster['query'].url}/v1/messages", query)["messages"])
    assert [one["keys"] for one in found] == [["order-17"]]


@pytest.mark.parametrize("name", ["query", "txn-checker"])
def test_a_service_follows_the_broker_of_the_chart(cluster: dict[str, Pod], name: str) -> None:
    url = f"{cluster[name].url}/v1/status"
    [log] = wait_until(lambda: [log for log in answer(url)["followed"] if log["followed_by"]])

    assert log["broker_name"] == "broker-a"


def answer(url: str, query: dict[str, str] | None = None) -> Any:  # noqa: ANN401 # JSON
    return httpx.get(url, params=query).raise_for_status().json()
