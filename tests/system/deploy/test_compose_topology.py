"""A part of the compose file as processes on this machine: its settings, keys and certificates.

It is one broker with both replicas, one of the two name servers and controllers, and the console.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_deploy.credentials import made_credentials
from eruca_deploy.keys import ROLES
from support.command_line import Eruca
from support.compose_file import resolved
from support.container_processes import Running, Wanted, running
from support.containerfile import stages
from support.documents import ROOT
from support.waiting import wait_until

SERVICES: dict[str, Any] = resolved(ROOT / "deploy" / "compose" / "compose.yaml", {})["services"]
STAGES = stages(ROOT / "deploy" / "images" / "Containerfile")
STARTED = ("namesrv-1", "controller", "broker-a-1", "broker-a-2", "console")
LEFT_OUT = (";https://namesrv-2:9877", ";https://controller-2:9879")
OTHERWISE = {  # a part is expected, and needs no PostgreSQL
    "ERUCA_NAMESRV_EXPECTED_BROKERS": "broker-a",
    "ERUCA_NAMESRV_EXPECTED_SERVICES": "",
    "ERUCA_CONTROLLER_STORE": "file",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of credentials, as the service of that name makes them."""
    folder = tmp_path_factory.mktemp("credentials")
    made_credentials(folder, SERVICES["credentials"]["command"])
    return folder


@pytest.fixture(scope="module")
def cluster(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """The containers, started together."""
    homes = tmp_path_factory.mktemp("homes")
    wanted = {name: wanted_of(name, made, homes / name) for name in STARTED}
    with running(wanted) as started:
        yield started


def wanted_of(name: str, made: Path, home: Path) -> Wanted:
    service = SERVICES[name]
    stage = STAGES[service["build"]["target"]]
    environment = {key: str(value) for key, value in service["environment"].items()}
    environment.pop("DATABASE_URL_FILE", None)
    environment |= {key: value for key, value in OTHERWISE.items() if key in environment}
    for key, value in environment.items():
        for url in LEFT_OUT:
            value = value.replace(url, "")  # noqa: PLW2901
        environment[key] = value
    role = ROLES[f"eruca_{stage.name.replace('-', '_')}"]
    directories = {"/etc/eruca": made / role, "/var/lib/eruca": home}
    return Wanted(
        stage, environment, directories, rf"(?:{name}|127\.0\.0\.1|localhost):{port_of(name)}"
    )


def port_of(name: str) -> str:
    [published] = SERVICES[name]["ports"]
    return str(published).rpartition(":")[2]


def test_the_administrator_sends_to_both_replicas(cluster: dict[str, Running], made: Path) -> None:
    command = Eruca(cluster["namesrv-1"].url)
    command.environment |= {
        "ERUCA_NETWORK": "host",
        "ERUCA_TLS_CA_FILE": str(made / "administrator" / "ca.pem"),
        "ERUCA_API_KEY_FILE": str(made / "administrator" / "api.key"),
        "ERUCA_CONTROLLER_URLS": cluster["controller"].url,
    }
    wait_until(lambda: len(command.json("broker", "show", "broker-a")["in_sync"]) == 2)

    command("send", "--topic", "orders", "--copies", "2", "order 17")

    assert command.bodies("orders") == ["order 17"]


@pytest.mark.parametrize("name", STARTED)
def test_prometheus_reads_metrics_with_its_key(
    cluster: dict[str, Running], made: Path, name: str
) -> None:
    key = (made / "prometheus" / "api.key").read_text().strip()
    context = ssl.create_default_context(cafile=made / "prometheus" / "ca.pem")
    with httpx.Client(verify=context, base_url=cluster[name].url) as client:
        assert client.get("/metrics").status_code == 401
        read = client.get("/metrics", headers={"Authorization": f"Bearer {key}"})

    assert read.status_code == 200
    assert "eruca_http_requests_total" in read.text
