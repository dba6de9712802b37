"""The images' own commands, in a clean root: ready, and stopped in order by SIGTERM."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clean_root import Container, build, why_not
from support.containerfile import Stage, stages
from support.documents import ROOT
from support.waiting import wait_until

STAGES = stages(ROOT / "deploy" / "images" / "Containerfile")
SERVICES = {name: stage for name, stage in STAGES.items() if stage.ports}
SETTINGS = {"ERUCA_AUTH": "open", "ERUCA_CONTROLLER_STORE": "file"}  # no other machine is needed

missing = why_not()
pytestmark = [
    pytest.mark.skipif(missing is not None, reason=str(missing)),
    pytest.mark.timeout(900),  # the environment is built once for all tests
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of all images, made by the Containerfile's own commands."""
    return build(STAGES["build"], tmp_path_factory.mktemp("image"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The container's volume."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.mark.parametrize("stage", SERVICES.values(), ids=SERVICES)
def test_a_service_becomes_healthy_and_stops_in_order(stage: Stage, made: Path, home: Path) -> None:
    with Container(stage, made, home, SETTINGS) as container:

        def healthy() -> bool:
            assert not container.is_over, container.log.read_text()
            return container.run(stage.healthcheck).returncode == 0

        wait_until(healthy)
        assert container.stop() == 0, container.log.read_text()

    assert [e for e in container.events() if e.get("level") in ("error", "critical")] == []


def test_a_service_without_rules_does_not_start(made: Path, home: Path) -> None:
    """It listens on every address, so everybody would be let in."""
    with Container(STAGES["broker"], made, home, {}) as container:
        assert container.wait() == 2

    assert "ERUCA_AUTH_FILE" in container.log.read_text()


def test_the_command_line_is_in_the_tools(made: Path, home: Path) -> None:
    with Container(STAGES["tools"], made, home, {}, ["--version"]) as container:
        assert container.wait() == 0

    assert container.log.read_text().startswith("eruca ")
