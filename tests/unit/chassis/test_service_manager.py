"""Start and stop are notified by datagrams, to a file or an abstract socket, if there is one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca_chassis.running.service_manager import SOCKET_VARIABLE, notify_started, notify_stopping


@pytest.mark.parametrize("is_abstract", [False, True])
def test_start_and_stop_are_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    path = f"{tmp_path}/notify"
    monkeypatch.setenv(SOCKET_VARIABLE, f"@{path}" if is_abstract else path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{path}" if is_abstract else path)

        notify_started("listening on http://127.0.0.1:1")
        notify_stopping()

        assert manager.recv(4096) == b"READY=1\nSTATUS=listening on http://127.0.0.1:1"
        assert manager.recv(4096).startswith(b"STOPPING=1\n")


def test_without_a_manager_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    with capture_logs() as logs:
        notify_started("")
    assert logs == []


def test_a_manager_that_is_gone_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "gone"))
    with capture_logs() as logs:
        notify_started("")
    assert [line["event"] for line in logs] == ["the service manager cannot be notified"]
