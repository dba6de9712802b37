"""``--check`` of each service: whether it could start, as an exit code, with nothing written."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import PATIENCE_SECONDS
from support.processes import clean_environment

BIN = Path(sys.executable).parent
SERVICES = ("broker", "console", "controller", "namesrv", "query", "txn-checker")


def checked(service: str, directory: Path, **settings: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [BIN / f"eruca-{service}", "--check"],
        capture_output=True,
        cwd=directory,
        env={**clean_environment(), **settings},
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_with_its_defaults_is_ready_to_start(service: str, tmp_path: Path) -> None:
    port = {f"ERUCA_{service.upper().replace('-', '_')}_PORT": "0"}

    code, lines = checked(service, tmp_path, **port)

    assert (code, lines[-1]) == (0, "Ready to start.")
    settings = "ok     settings: 1 from the environment; all others have their defaults"
    assert lines[0] == settings
    assert all(line.startswith("ok     ") for line in lines[:-1])
    assert [*tmp_path.iterdir()] == []


def test_a_port_in_use_is_a_note(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        code, lines = checked("namesrv", tmp_path, ERUCA_NAMESRV_PORT=port)

    assert code == 0
    [note] = [line for line in lines if line.startswith("note")]
    assert note.startswith(f"note   port: 127.0.0.1:{port}: Address already in use; stop the ")


def test_every_fault_is_named_with_its_fix(tmp_path: Path) -> None:
    for name in ("rules.toml", "cert.pem", "kv.json"):
        (tmp_path / name).write_text("no = ")

    code, lines = checked(
        "namesrv",
        tmp_path,
        ERUCA_AUTH_FILE="rules.toml",
        ERUCA_NAMESRV_HOST="192.0.2.1",  # of no machine (RFC 5737)
        ERUCA_NAMESRV_KV_FILE="kv.json",
        ERUCA_NAMESRV_TLS_CERT_FILE="cert.pem",
    )

    assert (code, lines[-1]) == (2, "Not ready to start: see the faults above.")
    faults = [line.split()[1] for line in lines if line.startswith("fault  ")]
    assert faults == ["rules:", "tls:", "port:", "key-value"]


def test_a_controller_asks_its_store(tmp_path: Path) -> None:
    etcd = {"ERUCA_CONTROLLER_STORE": "etcd", "ERUCA_CONTROLLER_ETCD_URLS": "http://127.0.0.1:1"}
    code, lines = checked("controller", tmp_path, ERUCA_CONTROLLER_PORT="0", **etcd)
    assert code == 2
    assert any("fault  store: etcd does not answer" in line for line in lines)

    (tmp_path / "groups.json").write_text("[")
    file = {"ERUCA_CONTROLLER_STORE": "file", "ERUCA_CONTROLLER_FILE": "groups.json"}
    code, lines = checked("controller", tmp_path, ERUCA_CONTROLLER_PORT="0", **file)
    assert code == 2
    assert any("is not a file of broker groups" in line for line in lines)

    (tmp_path / "groups.json").unlink()
    code, lines = checked("controller", tmp_path, ERUCA_CONTROLLER_PORT="0", **file)
    assert (code, [*tmp_path.iterdir()]) == (0, [])
