"""The Containerfile: sound by hadolint, and each image is one service as its settings know it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from eruca_chassis.running.settings import ServiceSettings
from eruca_deploy.plan import MODULES
from support.containerfile import Stage, is_in_context, stages
from support.documents import ROOT
from support.settings_of_services import SETTINGS

CONTAINERFILE = ROOT / "deploy" / "images" / "Containerfile"
STAGES = stages(CONTAINERFILE)
SERVICES = {f"eruca_{name.replace('-', '_')}": s for name, s in STAGES.items() if s.ports}
each_service = pytest.mark.parametrize("module", SERVICES)


def test_the_containerfile_is_sound() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([hadolint, CONTAINERFILE], capture_output=True, text=True, check=False)

    assert (found.returncode, found.stdout) == (0, "")


def test_each_service_has_an_image() -> None:
    assert {*SERVICES} == {*MODULES}


@each_service
def test_an_image_runs_its_service_alone_and_not_as_root(module: str) -> None:
    stage = SERVICES[module]

    assert stage.entrypoint == (module.replace("_", "-"),)
    assert stage.user == "10001:10001"
    assert stage.directory == "/var/lib/eruca"


@each_service
def test_an_image_has_settings_of_its_service(module: str) -> None:
    settings: type[ServiceSettings] = SETTINGS[module]
    said = {n for n in SERVICES[module].environment if n.startswith("ERUCA_")}

    assert said <= {*settings.variables().values()}
    assert SERVICES[module].environment[settings.variables()["host"]] == "0.0.0.0"


@each_service
def test_an_image_asks_its_service_where_it_listens(module: str) -> None:
    stage, settings = SERVICES[module], SETTINGS[module]
    port = settings.model_fields["port"].default

    assert stage.ports == (port,)
    assert stage.healthcheck == (
        *("python", "-m", "eruca_chassis.healthcheck"),
        settings.prefix().removesuffix("_"),
        str(port),
    )


def test_images_and_repository_have_the_same_uv_and_python() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = CONTAINERFILE.read_text()

    assert re.findall(r"uv==([0-9.]+)", text) == re.findall(r"uv==([0-9.]+)", makefile)
    assert f"ARG PYTHON=3.{sys.version_info.minor}-" in text


def test_a_build_sees_the_sources_and_nothing_private() -> None:
    ignored = (ROOT / ".dockerignore").read_text()
    seen = ["pyproject.toml", "uv.lock", "sdk/src/eruca/__init__.py", "services/broker/LICENSE"]
    hidden = [".git/config", ".venv/bin/python", "tests/conftest.py", "deploy/compose/.env"]

    assert [path for path in (*seen, *hidden) if is_in_context(path, ignored)] == seen


@pytest.mark.parametrize(
    "faulty",
    ["FROM eruca AS x\nENTRYPOINT eruca-broker", "FROM eruca AS x\nADD a /", "ENV A=1"],
)
def test_another_form_of_an_instruction_is_refused(tmp_path: Path, faulty: str) -> None:
    """So nobody writes a shell before the service, which would keep its signals."""
    (tmp_path / "Containerfile").write_text(f"{faulty}\n")

    with pytest.raises((AssertionError, ValueError)):
        stages(tmp_path / "Containerfile")


def test_a_stage_inherits(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(
        "ARG TAG=1\nFROM a:${TAG} AS b\nENV X=1 \\\n    Y=2\nRUN one\nUSER 1:1\n"
        "FROM b AS c\nENV X=3\n"
    )

    found = stages(tmp_path / "Containerfile")

    assert found["b"].base == "a:1"
    assert found["c"] == Stage("c", "b", {"X": "3", "Y": "2"}, user="1:1")
