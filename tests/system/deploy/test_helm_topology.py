"""The pods of the Helm chart's small set, as processes on this machine: ready, and at work.

Commands, variables and probes are the rendered ones. Names of pods become addresses of the
loopback, and each volume a directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

import eruca
from support.container_processes import Running, Wanted, running
from support.containerfile import stages
from support.documents import ROOT
from support.helm_chart import NAMESPACE, kept, of_kind, pods
from support.waiting import wait_until

STAGES = stages(ROOT / "deploy" / "images" / "Containerfile")
MANIFESTS = kept("small")
CONTAINERS = {
    container["name"]: container
    for stateful in of_kind(MANIFESTS, "StatefulSet")
    for container in stateful["spec"]["template"]["spec"]["containers"]
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, Running]]:
    """All pods of the set, by their services' names, started together as Kubernetes does."""
    # The user of an embedded PostgreSQL can always reach this directory; it cannot reach pytest's.
    with TemporaryDirectory(prefix="eruca-pods-") as folder:
        wanted = {}
        for stateful in of_kind(MANIFESTS, "StatefulSet"):
            [(pod, environment)] = pods(stateful)
            stage = STAGES[stateful["metadata"]["labels"]["app.kubernetes.io/component"]]
            address = rf"{pod}\.[\w-]+\.{NAMESPACE}\.svc\.cluster\.local:\d+"
            homes = {"/var/lib/eruca": Path(folder) / pod}
            wanted[stage.name] = Wanted(stage, environment, homes, address)
        with running(wanted) as started:
            yield started


def test_every_pod_is_ready(cluster: dict[str, Running]) -> None:
    assert {*cluster} == {"namesrv", "broker", "txn-checker", "query", "console"}
    for name, pod in cluster.items():
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = CONTAINERS[name][probe]["httpGet"]["path"]
            assert httpx.get(f"{pod.url}{asked}").status_code == 200


def test_a_message_is_found_by_the_query_service(cluster: dict[str, Running]) -> None:
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
def test_a_service_follows_the_broker_of_the_chart(cluster: dict[str, Running], name: str) -> None:
    url = f"{cluster[name].url}/v1/status"
    [log] = wait_until(lambda: [log for log in answer(url)["followed"] if log["followed_by"]])

    assert log["broker_name"] == "broker-a"


def answer(url: str, query: dict[str, str] | None = None) -> Any:  # noqa: ANN401 # JSON
    return httpx.get(url, params=query).raise_for_status().json()
