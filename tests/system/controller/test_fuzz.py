"""The controller under made-up requests: no defect, no undocumented answer, no hang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from schemathesis import GenerationMode

from eruca.contract.limits import GROUP_WAIT_SECONDS_MAX
from support.controllers import CREATE, GROUPS, group
from support.forked import forked
from support.fuzzing import Known, Operation, every_operation_of, fuzz
from support.processes import ServiceProcess

pytestmark = pytest.mark.timeout(600)

KNOWN: Known = {"broker_name": ["broker-a", "broker-b"]}


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory: Path = tmp_path_factory.mktemp("controller")
    settings = {
        "ERUCA_CONTROLLER_PORT": "0",
        "ERUCA_CONTROLLER_STORE": "file",
        "ERUCA_CONTROLLER_FILE": str(directory / "groups.json"),
    }
    with forked("eruca_controller", settings) as process:
        for name in KNOWN["broker_name"]:
            url = f"{process.url}/v1{GROUPS}/{name}"
            httpx.put(url, json=group(), headers=CREATE, trust_env=False).raise_for_status()
        yield process
        assert process.stop() == 0
        assert [event for event in process.log if event.get("level") == "error"] == []


@every_operation_of("controller")
def test_every_answer_is_a_documented_one(
    controller: ServiceProcess, operation: Operation, mode: GenerationMode
) -> None:
    fuzz(operation, mode, controller, known=KNOWN, wait_seconds_max=GROUP_WAIT_SECONDS_MAX)
