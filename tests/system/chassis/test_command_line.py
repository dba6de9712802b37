"""A service by its command, with a file of settings: as by its module, with the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from support.patience import PATIENCE_SECONDS
from support.processes import ServiceProcess, clean_environment

COMMAND = str(Path(sys.executable).parent / "eruca-namesrv")


@pytest.mark.parametrize("program", [[COMMAND], [sys.executable, "-m", "eruca_namesrv"]])
def test_a_file_of_settings_is_enough_to_run(program: list[str], tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("""
        port = 0
        log_style = "json"
        expected_brokers = []
        kv_file = "never"
        [shared]
        auth = "open"
    """)
    environment = {**clean_environment(), "ERUCA_NAMESRV_KV_FILE": str(tmp_path / "kv.json")}
    with subprocess.Popen(
        [*program, "--config", file], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        service = ServiceProcess(process)
        service.wait_until_listening()

        put = httpx.put(f"{service.url}/v1/kv/place/key", json={"value": "1"})

        assert put.is_success, put.text
        assert service.stop() == 0
        process.wait(PATIENCE_SECONDS)
    assert (tmp_path / "kv.json").exists(), "the environment wins"
