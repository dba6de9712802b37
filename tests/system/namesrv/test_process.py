"""The name server as a process: how it starts, refuses to start, keeps its file and stops.

As in the broker's tests, not each of them starts a program: some fork what has been imported.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from eruca_chassis.running.command_line import SETTINGS_EXIT_CODE
from eruca_chassis.running.serving import LISTEN_EXIT_CODE, START_EXIT_CODE
from support.forked import forked, forked_to_the_end
from support.processes import run_to_the_end, running

MODULE = "eruca_namesrv"
ANY_PORT = {"ERUCA_NAMESRV_PORT": "0"}


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_exit_code_0(by: signal.Signals) -> None:
    with running(MODULE, ANY_PORT) as process:
        assert httpx.get(f"{process.url}/readyz").status_code == 200

        assert process.stop(by) == 0

        assert [e["event"] for e in process.log] == ["listening", "stopping", "stopped"]


def test_stopping_does_not_wait_for_held_requests() -> None:
    with forked(MODULE, ANY_PORT) as process:
        answers: list[httpx.Response] = []
        url = f"{process.url}/v1/topics/t/route?wait_seconds=30"
        thread = threading.Thread(target=lambda: answers.append(httpx.get(url)))
        thread.start()
        while httpx.get(f"{process.url}/v1/status").json()["held_requests"] == 0:
            pass

        assert process.stop() == 0

        thread.join()
        assert (answers[0].status_code, answers[0].json()["code"]) == (503, "not-ready")


def test_a_taken_port_is_one_line_that_names_it() -> None:
    with running(MODULE, ANY_PORT) as process:
        port = str(urlsplit(process.url).port)

        code, errors = run_to_the_end(MODULE, {"ERUCA_NAMESRV_PORT": port})

    assert code == LISTEN_EXIT_CODE
    assert errors == (
        f"namesrv: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "stop the process that listens there or set ERUCA_NAMESRV_PORT\n"
    )


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid", "a..b", "a" * 64])
def test_an_address_that_is_not_ours_is_one_line_too(host: str) -> None:
    code, errors = forked_to_the_end(
        MODULE, ANY_PORT | {"ERUCA_NAMESRV_HOST": host, "ERUCA_AUTH": "open"}
    )

    assert code == LISTEN_EXIT_CODE
    assert errors.startswith(f"namesrv: cannot listen on {host}:0: ")
    assert errors.endswith("; set ERUCA_NAMESRV_HOST to an address of this machine\n")
    assert "Unknown error" not in errors
    assert errors.count("\n") == 1


def test_it_listens_on_ipv6_too() -> None:
    with forked(MODULE, ANY_PORT | {"ERUCA_NAMESRV_HOST": "::1"}) as process:
        assert process.url.startswith("http://[::1]:")
        assert httpx.get(f"{process.url}/healthz").status_code == 200


def test_wrong_settings_are_all_named_without_a_traceback() -> None:
    wrong = {
        "ERUCA_NAMESRV_PORT": "-1",
        "ERUCA_NAMESRV_KV_FLIE": "x",
        "ERUCA_NAMESRV_BODIES_BYTES_MAX": "1000000",
    }

    code, errors = run_to_the_end(MODULE, wrong)

    assert code == SETTINGS_EXIT_CODE
    misspelt, port, bodies = errors.splitlines()
    assert misspelt.endswith("did you mean ERUCA_NAMESRV_KV_FILE?")
    assert port.startswith("ERUCA_NAMESRV_PORT=-1: ")
    assert bodies.startswith(
        "ERUCA_NAMESRV_BODIES_BYTES_MAX=1000000: must be at least body_bytes_max"
    )


def test_the_clients_setting_of_the_same_prefix_is_left_alone() -> None:
    with running(MODULE, ANY_PORT | {"ERUCA_NAMESRV_URLS": "http://127.0.0.1:1"}) as process:
        assert process.stop() == 0


def test_an_invalid_kv_file_is_named_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text("{")

    code, errors = run_to_the_end(MODULE, ANY_PORT | {"ERUCA_NAMESRV_KV_FILE": str(path)})

    assert code == START_EXIT_CODE
    assert errors.startswith(f"namesrv: {path} is not a key-value table: ")
    assert "Traceback" not in errors
    assert path.read_text() == "{"


def test_a_second_name_server_is_refused_the_table_of_the_first(tmp_path: Path) -> None:
    settings = ANY_PORT | {"ERUCA_NAMESRV_KV_FILE": str(tmp_path / "kv.json")}
    with running(MODULE, settings) as first:
        code, errors = run_to_the_end(MODULE, settings)

        assert code == START_EXIT_CODE
        assert errors.startswith(
            f"namesrv: the key-value table {tmp_path / 'kv.json'} is in use by "
            f"process {first.pid}; "
        )
        first.stop(signal.SIGKILL)
    with running(MODULE, settings):
        pass  # the lock has died with its process


def test_what_was_acknowledged_survives_a_kill_and_routes_do_not(tmp_path: Path) -> None:
    settings = ANY_PORT | {"ERUCA_NAMESRV_KV_FILE": str(tmp_path / "deep" / "kv.json")}
    registration = {
        "cluster": "c",
        "urls": {"default": "http://127.0.0.1:10911"},
        "store_host": "127.0.0.1:10911",
        "data_version": 1,
        "topics": [],
    }
    with forked(MODULE, settings) as process:
        for i in range(5):
            put = httpx.put(f"{process.url}/v1/kv/ns/{i}", json={"value": str(i)})
            assert put.status_code == 200
        registered = httpx.put(f"{process.url}/v1/brokers/a/0", json=registration)
        assert registered.status_code == 200
        process.stop(signal.SIGKILL)

    with forked(MODULE, settings) as process:
        entries = httpx.get(f"{process.url}/v1/kv/ns").json()["entries"]
        assert entries == {str(i): str(i) for i in range(5)}
        assert httpx.get(f"{process.url}/v1/status").json()["brokers"] == 0
        assert httpx.get(f"{process.url}/v1/brokers").json()["code"] == "name-server-settling"
