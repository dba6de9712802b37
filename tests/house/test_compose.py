"""``deploy/compose``: the cluster of ``eruca-local --secure``, in a file that engines take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from eruca_broker.settings import advertised_urls
from eruca_deploy.certificates import Certificates
from eruca_deploy.credentials import made_credentials
from eruca_deploy.keys import ROLES
from eruca_deploy.plan import MODULES, ClusterPlan, Service, plan_cluster, ports_from
from support.compose_file import mounts_of, reference_faults, resolved, schema_faults
from support.containerfile import stages
from support.documents import ROOT
from support.settings_of_services import SETTINGS, unknown_settings

FOLDER: Final = ROOT / "deploy" / "compose"
FILE: Final = FOLDER / "compose.yaml"
CONTENT: Final = resolved(FILE, {})
SERVICES: Final[dict[str, Any]] = CONTENT["services"]
STAGES: Final = stages(ROOT / "deploy" / "images" / "Containerfile")
COUNTS: Final[Mapping[str, int]] = {
    **{"namesrvs": 2, "brokers": 3, "replicas": 2, "controllers": 2},
    **{"txn_checkers": 1, "queries": 1, "consoles": 1},
}
MADE: Final = Path("/etc/eruca")  # a role's credentials, in its containers


def cluster() -> ClusterPlan:
    """The cluster of ``eruca-local --secure`` with these counts, listening on every address."""
    certificates = Certificates(MADE / "ca.pem", MADE / "service.pem", MADE / "service.key")
    return plan_cluster(
        **COUNTS,
        ports=ports_from(None, **COUNTS),
        data_dir=Path("/data"),
        environment={
            **certificates.settings(),
            **{f"{module.upper()}_HOST": "0.0.0.0" for module in MODULES},
            "DATABASE_URL": "postgresql://eruca@postgres/eruca",
        },
    )


PLANNED: Final = {service.name: service for service in cluster().services}
each_service = pytest.mark.parametrize("planned", PLANNED.values(), ids=PLANNED)


def environment_of(name: str) -> dict[str, str]:
    """Return a container's environment: its image's, and the file's."""
    service = SERVICES[name]
    image = STAGES[service["build"]["target"]].environment
    ours = {k: v for k, v in image.items() if k.startswith("ERUCA_")}
    return {**ours, **service["environment"]}


def on_loopback(text: str) -> str:
    """Return *text* with this machine's address in place of the containers' names."""
    return re.sub(rf"(https://)(?:{'|'.join(PLANNED)})(:\d+)", r"\g<1>127.0.0.1\2", text)


def test_the_specification_allows_the_file() -> None:
    assert schema_faults(CONTENT) == []


def test_every_reference_leads_somewhere() -> None:
    healthy = {n for n in PLANNED if STAGES[SERVICES[n]["build"]["target"]].healthcheck}

    assert [*reference_faults(CONTENT, FOLDER, healthy)] == []


def test_faults_would_be_found() -> None:
    content = deepcopy(CONTENT)
    content["services"]["query"]["port"] = 1
    content["services"]["query"]["depends_on"] = {
        "nobody": {"condition": "service_started"},
        "grafana": {"condition": "service_healthy"},
        "broker-a-1": {"condition": "service_completed_successfully"},
    }
    content["services"]["query"]["ports"] = ["127.0.0.1:9876:1"]
    content["services"]["query"]["volumes"] = ["nothing:/x", "./nowhere:/y"]

    assert len(schema_faults(content)) == 1
    assert len([*reference_faults(content, FOLDER, set())]) >= 6


def test_the_services_are_those_of_a_local_cluster() -> None:
    others = {"credentials", "tools", "postgres", "prometheus", "grafana"}

    assert {*SERVICES} == {*PLANNED} | others
    for name, planned in PLANNED.items():
        build = SERVICES[name]["build"]
        assert STAGES[build["target"]].entrypoint == (planned.module.replace("_", "-"),)
        assert (FOLDER / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).exists()


@each_service
def test_each_variable_is_a_setting_of_its_service(planned: Service) -> None:
    assert unknown_settings(planned.module, environment_of(planned.name)) == []


@each_service
def test_a_service_takes_its_settings(planned: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, and what one setting demands of another."""
    environment = environment_of(planned.name)
    if environment.pop("DATABASE_URL_FILE", None):
        environment["DATABASE_URL"] = "postgresql://eruca:x@postgres:5432/eruca"
    monkeypatch.setattr(os, "environ", environment)

    settings = SETTINGS[planned.module].load()

    assert settings.has_rules
    assert settings.scheme == "https"


@each_service
def test_a_service_has_the_settings_of_a_local_cluster(planned: Service) -> None:
    here = {name: on_loopback(value) for name, value in environment_of(planned.name).items()}
    prefix = SETTINGS[planned.module].prefix()
    expected = {name: value for name, value in planned.settings.items() if name.startswith(prefix)}
    expected |= {name: f"{MADE}/{file}" for name in here if (file := name_of_file(name))}
    for name in [*expected]:
        if "/data/" in expected[name]:  # a path: a volume's, or of an embedded PostgreSQL
            del expected[name]
            assert here.pop(name, "/var/lib/eruca").startswith("/var/lib/eruca")
    if planned.broker_name is not None:
        networks = advertised_urls(here["ERUCA_BROKER_ADVERTISED_URL"])
        assert networks == dict.fromkeys(("default", "host"), planned.url)
    elif f"{prefix}ADVERTISED_URL" in here:
        assert here[f"{prefix}ADVERTISED_URL"].replace("localhost", "127.0.0.1") == planned.url

    different = {name for name in {*here, *expected} if here.get(name) != expected.get(name)}

    assert different <= {
        f"{prefix}ADVERTISED_URL",  # of a container: its name
        f"{prefix}ALLOWED_HOSTS",
        "ERUCA_BROKER_STORE_IP",  # a container's address changes
        "ERUCA_TXN_CHECKER_WEBHOOK_REACH",  # producers are other containers
    }


def name_of_file(variable: str) -> str | None:
    """Return the file of a role's credentials that a variable has to name."""
    endings = {
        **{"_TLS_CERT_FILE": "service.pem", "_TLS_KEY_FILE": "service.key"},
        **{"_CA_FILE": "ca.pem", "API_KEY_FILE": "api.key", "AUTH_FILE": "rules.toml"},
        "DATABASE_URL_FILE": "database.url",
    }
    return next((file for ending, file in endings.items() if variable.endswith(ending)), None)


@each_service
def test_a_port_is_this_machine_s_and_the_same_inside(planned: Service) -> None:
    assert SERVICES[planned.name]["ports"] == [f"127.0.0.1:{planned.port}:{planned.port}"]


@each_service
def test_a_container_can_do_little(planned: Service) -> None:
    service = SERVICES[planned.name]

    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["stop_grace_period"] == "60s"


@each_service
def test_a_container_has_the_credentials_of_its_role_alone(planned: Service) -> None:
    mounts = mounts_of(SERVICES[planned.name])

    assert mounts.pop("/etc/eruca") == f"credentials-{ROLES[planned.module]}"
    assert [*mounts.items()] == (
        [("/var/lib/eruca", planned.name)]
        if planned.module in ("eruca_broker", "eruca_namesrv")
        else []
    )


def test_credentials_are_made_for_these_services(tmp_path: Path) -> None:
    job = SERVICES["credentials"]
    made_credentials(tmp_path, job["command"])

    assert {*job["command"]} == {*PLANNED}
    assert job["entrypoint"] == ["python", "-m", "eruca_deploy.credentials", "/credentials"]
    assert mounts_of(job) == {
        f"/credentials/{folder.name}": (
            "credentials" if folder.name == "all" else f"credentials-{folder.name}"
        )
        for folder in tmp_path.iterdir()
    }
    for name in ("prometheus", "postgres", "grafana"):
        assert mounts_of(SERVICES[name])["/credentials"] == f"credentials-{name}"
    assert mounts_of(SERVICES["tools"]) == {"/etc/eruca": "credentials-administrator"}


def test_folders_of_credentials_belong_to_the_images_user() -> None:
    text = (ROOT / "deploy" / "images" / "Containerfile").read_text()

    for folder in mounts_of(SERVICES["credentials"]):
        assert re.search(rf"{folder}\b", text), folder


def test_prometheus_reads_every_service() -> None:
    read = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    jobs = {job["job_name"]: job for job in read}

    assert {*jobs} == {module.replace("_", "-") for module in MODULES}
    for name, job in jobs.items():
        [static] = job["static_configs"]
        assert sorted(static["targets"]) == sorted(
            f"{s.name}:{s.port}" for s in PLANNED.values() if s.module.replace("_", "-") == name
        )
        assert (job["scheme"], job["authorization"], job["tls_config"]) == (
            "https",
            {"credentials_file": "/credentials/api.key"},
            {"ca_file": "/credentials/ca.pem"},
        )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus' promtool")
def test_prometheus_takes_its_configuration() -> None:
    command = ["promtool", "check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr
