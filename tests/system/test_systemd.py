"""The units of systemd are valid and hardened, and the Debian page leads to a running cluster.

systemd does not run here. Its own tools read the units, and the tests do what it would do with
them: they set the files up below another root, and start the commands with a socket for notices.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.documents import ROOT, blocks
from support.patience import PATIENCE_SECONDS
from support.processes import ServiceProcess, clean_environment

BIN = Path(sys.executable).parent
PAGE = ROOT / "docs" / "guide" / "debian.md"
SERVICES = ("broker", "console", "controller", "namesrv", "query", "txn-checker")
EXPOSURE_MAX = 3.0
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with all that the commands of the page install, as far as they need no root."""
    for command in commands():
        words = command.removeprefix("sudo ").split()
        if words[:2] == ["install", "-D"]:
            *options, source, target = words[1:]
            file = ROOT / "deploy" / source
            subprocess.run(["install", *options, file, f"{tmp_path}{target}"], check=True)
    for block in blocks(PAGE):
        if block.language == "toml":
            name, _, text = block.text.partition("\n")
            file = tmp_path / name.removeprefix("# /")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    programs = tmp_path / "opt" / "eruca" / "bin"
    programs.mkdir(parents=True)
    for service in SERVICES:
        shutil.copy(BIN / f"eruca-{service}", programs)
    return tmp_path


def commands() -> list[str]:
    """Return the commands that the page shows."""
    return [
        line.removeprefix("$ ")
        for block in blocks(PAGE)
        if block.language == "console"
        for line in block.text.replace("\\\n", " ").splitlines()
        if line.startswith("$ ")
    ]


def ran(*command: str | Path) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_page_installs_every_file_of_the_folder(root: Path) -> None:
    shown = "\n".join(commands())

    assert all(f" systemd/{file.name} " in shown for file in (ROOT / "deploy/systemd").iterdir())
    assert (root / "etc/systemd/system/eruca@.service").exists()
    enabled = set(re.findall(r"eruca@([a-z-]+)", shown))
    assert enabled == {file.stem for file in (root / "etc/eruca").glob("*.toml")}


@needs_systemd
@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_is_valid_and_exposes_little(root: Path, service: str) -> None:
    shutil.copytree(
        "/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True
    )  # the targets that it names
    unit = f"eruca@{service}.service"

    assert ran("systemd-analyze", "verify", f"--root={root}", unit) == ""
    rated = ran(
        "systemd-analyze", "security", "--offline=true", "--no-pager", f"--root={root}", unit
    )

    [level] = re.findall(r"Overall exposure level for .*: ([0-9.]+)", rated)
    assert float(level) <= EXPOSURE_MAX


@needs_systemd
def test_the_user_and_the_folders_are_made(root: Path) -> None:
    ran("systemd-sysusers", f"--root={root}", root / "etc/sysusers.d/eruca.conf")

    [user] = [
        line for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("eruca:")
    ]
    assert user.split(":")[5:] == ["/var/lib/eruca", "/usr/sbin/nologin"]
    assert "d /etc/eruca 0750 root eruca -" in (root / "etc/tmpfiles.d/eruca.conf").read_text()


@pytest.mark.parametrize(
    "service", sorted({"broker", "console", "namesrv", "query", "txn-checker"})
)
def test_the_settings_of_the_page_are_ready_to_start(root: Path, service: str) -> None:
    state = root / "var/lib/eruca" / service
    state.mkdir(parents=True)

    done = subprocess.run(
        [BIN / f"eruca-{service}", "--config", root / f"etc/eruca/{service}.toml", "--check"],
        capture_output=True,
        cwd=state,
        env=clean_environment(),
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert [*state.iterdir()] == []


FORBID_WRITE_EXECUTE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE, as MemoryDenyWriteExecute= does; Linux 6.3
os.execv(sys.argv[1], sys.argv[1:])
"""


@contextmanager
def started(
    root: Path, service: str, manager: socket.socket, settings: Mapping[str, str]
) -> Iterator[ServiceProcess]:
    """Run a service as its unit does, until it says that it has started."""
    state = root / "var/lib/eruca" / service
    state.mkdir(parents=True)
    prefix = f"ERUCA_{service.upper().replace('-', '_')}"
    settings_file = root / f"etc/eruca/{service}.toml"
    command = [str(BIN / f"eruca-{service}"), "--config", str(settings_file)]
    process = subprocess.Popen(
        [sys.executable, "-c", FORBID_WRITE_EXECUTE, *command],
        cwd=state,
        env={
            **clean_environment(),
            **settings,
            f"{prefix}_PORT": "0",
            f"{prefix}_LOG_STYLE": "json",
            "NOTIFY_SOCKET": manager.getsockname(),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    with ServiceProcess(process) as running:
        running.wait_until_listening()
        assert manager.recv(4096) == f"READY=1\nSTATUS=listening on {running.url}".encode()
        yield running
        assert running.stop() == 0
        assert manager.recv(4096).startswith(b"STOPPING=1")


def test_the_services_start_as_systemd_starts_them(root: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(root / "notify"))
        manager.settimeout(PATIENCE_SECONDS)
        with started(root, "namesrv", manager, {}) as namesrv:
            servers = {"ERUCA_BROKER_NAMESRV_URLS": namesrv.url}
            with started(root, "broker", manager, servers) as broker:
                sent = httpx.post(
                    f"{broker.url}/v1/topics/orders/messages",
                    json={"body": {"text": "order 17"}},
                    trust_env=False,
                )
                assert sent.status_code == 201, sent.text
    assert (root / "var/lib/eruca/broker/store/commitlog").is_dir()
    assert (root / "var/lib/eruca/namesrv/kv.json").exists()
    assert (root / "var/lib/eruca/broker/store").stat().st_mode & 0o077 == 0
