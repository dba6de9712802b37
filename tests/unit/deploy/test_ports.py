"""Ports: a taken one is named together with the process that holds it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from eruca_deploy.ports import PortTakenError, check_ports, free_ports


def test_a_taken_port_is_named_with_the_process_that_holds_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        with pytest.raises(PortTakenError, match=f"port {port} .* process {os.getpid()} "):
            check_ports("127.0.0.1", [*free_ports("127.0.0.1", 1), port])


def test_free_ports_are_different_and_can_be_listened_on() -> None:
    ports = free_ports("127.0.0.1", 20)

    check_ports("127.0.0.1", ports)
    assert len(set(ports)) == 20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports are not held")
def test_no_other_process_is_given_a_port_before_its_service_listens() -> None:
    ports = free_ports("127.0.0.1", 50)
    asking = (
        "from unittest import mock; from eruca_deploy import ports;"
        f"given = iter([{ports[0]}, {ports[1]}, 31_999, *range(31_000, 31_900)]);"
        "chosen = mock.patch('random.SystemRandom.randrange', lambda *_: next(given));"
        "chosen.start(); print(ports.free_ports('127.0.0.1', 1)[0])"
    )

    other = subprocess.run(
        [sys.executable, "-c", asking], capture_output=True, text=True, check=True
    )

    assert int(other.stdout) not in ports
    with socket.create_server(("127.0.0.1", ports[0])):  # its own service does
        pass


def test_an_address_that_is_not_ours_is_an_error_that_names_it() -> None:
    with pytest.raises(PortTakenError, match=r"192\.0\.2\.1"):
        check_ports("192.0.2.1", free_ports("127.0.0.1", 1))


def test_no_free_port_at_an_address_that_is_not_ours() -> None:
    with pytest.raises(PortTakenError, match="no 1 free ports"):
        free_ports("192.0.2.1", 1)
