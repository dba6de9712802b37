"""The broker as a process: how it starts, registers, refuses to start, and stops.

Signals, exit codes and what lies on the disk are tested with programs; what it says and answers,
with processes that are forked, which is far less to compute.
"""

from __future__ import annotations

import functools
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import eruca
from eruca.contract.records import Record, encode_unstamped
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch
from eruca_chassis.running.command_line import SETTINGS_EXIT_CODE
from eruca_chassis.running.serving import LISTEN_EXIT_CODE, START_EXIT_CODE
from eruca_deploy.ports import free_ports
from support.forked import forked, forked_to_the_end
from support.patience import PATIENCE_SECONDS
from support.processes import run_to_the_end, running

MODULE = "eruca_broker"
NAMESRV = {"ERUCA_NAMESRV_PORT": "0", "ERUCA_NAMESRV_EXPECTED_BROKERS": "broker-a"}


def settings(directory: Path, **more: str) -> dict[str, str]:
    chosen = {
        "PORT": "0",
        "STORE_DIR": str(directory),
        "NAMESRV_URLS": "",
        "SEGMENT_BYTES": str(8 * 1024**2),
        **more,
    }
    return {f"ERUCA_BROKER_{name}": value for name, value in chosen.items()}


def until(condition: Callable[[], Any]) -> Any:  # noqa: ANN401  (whatever the condition returns)
    """Ask another process until it says yes; there is no event of its to wait for."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()):
        assert time.monotonic() < deadline
    return answer


def listed(namesrv: str, what: str) -> list[Any]:
    """Return what a name server lists; nothing while it waits for the broker."""
    found: list[Any] = httpx.get(f"{namesrv}/v1/{what}").json().get(what, [])
    return found


def is_empty(namesrv: str, what: str) -> bool:
    return not listed(namesrv, what)


def send(url: str, text: str = "x") -> httpx.Response:
    return httpx.post(f"{url}/v1/topics/orders/messages?queue_id=0", json={"body": {"text": text}})


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_what_was_sent_is_there_again(
    tmp_path: Path, by: signal.Signals
) -> None:
    with running(MODULE, settings(tmp_path)) as process:
        assert httpx.get(f"{process.url}/readyz").status_code == 200
        assert send(process.url, "kept").status_code == 201
        assert process.stop(by) == 0

    with running(MODULE, settings(tmp_path)) as process:
        answer = httpx.get(f"{process.url}/v1/topics/orders/queues/0/messages?offset=0").json()
        assert [m["body"]["text"] for m in answer["messages"]] == ["kept"]
        [opened] = [e for e in process.log if e["event"] == "broker open"]
        assert opened["topics"] == 2
        assert opened["log_max_offset"] > 0


def test_its_records_name_the_port_it_was_given(tmp_path: Path) -> None:
    with forked(MODULE, settings(tmp_path)) as process:
        port = urlsplit(process.url).port

        assert httpx.get(f"{process.url}/v1/status").json()["store_host"] == f"127.0.0.1:{port}"


def test_stopping_does_not_wait_for_held_requests(tmp_path: Path) -> None:
    with forked(MODULE, settings(tmp_path)) as process:
        send(process.url)
        answers: list[httpx.Response] = []
        url = f"{process.url}/v1/topics/orders/queues/0/messages?offset=1&wait_seconds=30"
        thread = threading.Thread(target=lambda: answers.append(httpx.get(url)))
        thread.start()
        until(lambda: httpx.get(f"{process.url}/v1/status").json()["held_requests"])

        assert process.stop() == 0

        thread.join()
        assert answers[0].json()["status"] == "no_new_message"


def test_a_client_that_vanishes_gives_its_place_back(tmp_path: Path) -> None:
    with forked(MODULE, settings(tmp_path)) as process:
        send(process.url)
        url = f"{process.url}/v1/topics/orders/queues/0/messages?offset=1&wait_seconds=30"
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(url, timeout=0.3)

        until(lambda: httpx.get(f"{process.url}/v1/status").json()["held_requests"] == 0)


def test_a_second_process_on_the_same_store_is_refused(tmp_path: Path) -> None:
    with running(MODULE, settings(tmp_path)):
        code, errors = run_to_the_end(MODULE, settings(tmp_path))

    assert code == START_EXIT_CODE
    assert errors.startswith("broker broker-a: the store directory ")
    assert errors.count("\n") == 1


def test_a_taken_port_leaves_the_store_alone(tmp_path: Path) -> None:
    with running(MODULE, settings(tmp_path / "one")) as process:
        port = str(urlsplit(process.url).port)

        code, _ = run_to_the_end(MODULE, settings(tmp_path / "two", PORT=port))

    assert code == LISTEN_EXIT_CODE
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NAMESRV_URLS", "127.0.0.1:9876"),
        ("NAMESRV_URLS", "http://a:1,http://b:1"),
        ("ADVERTISED_URL", "internal=http://a:1"),
        ("ADVERTISED_URL", "http://a:1;http://b:1"),
        ("NAME", "no blanks"),
        ("FLUSH_MODE", "never"),
        ("SEGMENT_BYTES", "1"),
        ("DELETE_HOURS", "24"),
        ("DISK_REFUSE_RATIO", "0.8"),
        ("EXPIRY_SECONDS", "9.9"),
        ("TOPICS_MAX", "100001"),
        ("ID", "1"),  # a replica, which does not exist yet
        ("ID", "-1"),
        ("PROT", "1"),
    ],
)
def test_a_wrong_setting_is_named_without_a_traceback(
    tmp_path: Path, name: str, value: str
) -> None:
    code, errors = forked_to_the_end(MODULE, settings(tmp_path / "store", **{name: value}))

    assert code == SETTINGS_EXIT_CODE
    assert errors.startswith(f"ERUCA_BROKER_{name}")
    assert "Traceback" not in errors
    assert not (tmp_path / "store").exists()


def test_an_address_that_is_none_cannot_go_into_records(tmp_path: Path) -> None:
    code, errors = run_to_the_end(MODULE, settings(tmp_path, STORE_IP="nowhere"))

    assert (code, errors.count("\n")) == (START_EXIT_CODE, 1)
    assert "ERUCA_BROKER_STORE_IP=nowhere" in errors


def test_it_listens_and_stores_on_ipv6_too(tmp_path: Path) -> None:
    with forked(MODULE, settings(tmp_path, HOST="::1")) as process:
        sent = send(process.url)

        assert process.url.startswith("http://[::1]:")
        assert len(sent.json()["offset_message_id"]) == 56
        read = httpx.get(f"{process.url}/v1/topics/orders/queues/0/messages?offset=0").json()
        assert read["messages"][0]["store_host"].startswith("[::1]:")
        assert read["messages"][0]["born_host"].startswith("[::1]:")


@pytest.mark.parametrize("host", ["::", "0.0.0.0", "localhost", "::1"])
def test_it_registers_where_it_listens(tmp_path: Path, host: str) -> None:
    with (
        forked(
            "eruca_namesrv", NAMESRV | {"ERUCA_NAMESRV_HOST": "::", "ERUCA_AUTH": "open"}
        ) as namesrv,
        forked(
            MODULE,
            settings(tmp_path, NAMESRV_URLS=namesrv.url, HOST=host) | {"ERUCA_AUTH": "open"},
        ) as broker,
    ):
        [group] = until(functools.partial(listed, namesrv.url, "brokers"))
        [registered] = group["brokers"]
        url = registered["urls"]["default"]

        assert httpx.get(f"{url}/readyz").status_code == 200
        assert url == f"http://{registered['store_host']}"
        assert urlsplit(url).port == urlsplit(broker.url).port


@pytest.mark.parametrize("way", ["json", "octets", "records"])
def test_a_record_names_its_sender_whichever_network_it_came_by(tmp_path: Path, way: str) -> None:
    with (
        forked("eruca_namesrv", NAMESRV) as namesrv,
        forked(
            MODULE,
            settings(tmp_path, NAMESRV_URLS=namesrv.url, HOST="::") | {"ERUCA_AUTH": "open"},
        ) as broker,
    ):
        port = urlsplit(broker.url).port
        for ip in ("[::1]", "127.0.0.1"):
            target = f"http://{ip}:{port}/v1/topics/orders"
            if way == "records":
                for record in (encode_unstamped(Record("orders", b"x", queue_id=0)),) * 2:
                    body = encode_batch([record] * 40)
                    sent = httpx.post(
                        f"{target}/queues/0/records",
                        content=body,
                        headers={"content-type": RECORDS_MEDIA_TYPE},
                    )
                    assert sent.status_code == 201, sent.text
            elif way == "octets":
                octets = {"content-type": "application/octet-stream"}
                httpx.post(f"{target}/messages?queue_id=0", content=b"x", headers=octets)
            else:
                send(f"http://{ip}:{port}")
        found = httpx.get(
            f"{broker.url}/v1/topics/orders/queues/0/messages?offset=0&count_max=1000"
        ).json()["messages"]

    born = [message["born_host"].rpartition(":")[0] for message in found]
    half = len(born) // 2
    assert len(born) == (160 if way == "records" else 2)
    assert born == ["[::1]"] * half + ["127.0.0.1"] * half


def test_every_name_server_learns_of_it_and_of_its_end(tmp_path: Path) -> None:
    with (
        forked("eruca_namesrv", NAMESRV) as first,
        forked("eruca_namesrv", NAMESRV) as second,
    ):
        urls = f"{first.url};http://127.0.0.1:1;{second.url}/"  # nobody listens on port 1
        quick = settings(tmp_path, NAMESRV_URLS=urls, HEARTBEAT_SECONDS="0.2")
        with forked(MODULE, quick) as broker:
            for namesrv in (first, second):
                until(functools.partial(listed, namesrv.url, "brokers"))

            send(broker.url)  # creates the topic

            for namesrv in (first, second):
                route = httpx.get(f"{namesrv.url}/v1/topics/orders/route?wait_seconds=30").json()
                assert route["queues"][0]["write_queue_count"] == 4
                assert route["brokers"][0]["urls"] == {"0": {"default": broker.url}}

            httpx.delete(f"{broker.url}/v1/topics/orders")
            for namesrv in (first, second):
                until(functools.partial(is_empty, namesrv.url, "topics"))

            assert broker.stop() == 0
        for namesrv in (first, second):
            assert is_empty(namesrv.url, "brokers")
        refusals = [e for e in broker.log if e["event"] == "not registered"]
        assert [e["namesrv"] for e in refusals] == ["http://127.0.0.1:1"]  # once, not each time


def test_a_name_server_that_restarts_learns_of_it_by_the_next_heartbeat(
    tmp_path: Path,
) -> None:
    port = str(free_ports("127.0.0.1", 1)[0])
    with forked("eruca_namesrv", {"ERUCA_NAMESRV_PORT": port}) as namesrv:
        url = namesrv.url
        quick = settings(tmp_path, NAMESRV_URLS=url, HEARTBEAT_SECONDS="0.2")
        with forked(MODULE, quick) as broker:
            send(broker.url)
            httpx.get(f"{url}/v1/topics/orders/route?wait_seconds=30")
            namesrv.stop()

            with forked("eruca_namesrv", {"ERUCA_NAMESRV_PORT": port}):
                route = httpx.get(f"{url}/v1/topics/orders/route?wait_seconds=30")
                assert route.json()["brokers"][0]["urls"]["0"] == {"default": broker.url}


def test_a_second_broker_of_a_name_takes_nothing_until_the_first_has_left(tmp_path: Path) -> None:
    with forked("eruca_namesrv", NAMESRV) as namesrv:
        quick = {"NAMESRV_URLS": namesrv.url, "HEARTBEAT_SECONDS": "0.2"}
        with forked(MODULE, settings(tmp_path / "one", **quick)) as first:
            assert send(first.url).status_code == 201
            with forked(MODULE, settings(tmp_path / "two", **quick)) as second:
                refused = send(second.url)
                ready = httpx.get(f"{second.url}/readyz")
                [group] = listed(namesrv.url, "brokers")

                assert first.stop() == 0

                until(lambda: httpx.get(f"{second.url}/readyz").status_code == 200)
                assert send(second.url).status_code == 201

    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
    assert "name is in use" in refused.json()["detail"]
    assert "ERUCA_BROKER_NAME" in refused.json()["fix"]
    assert ready.status_code == 503
    assert group["brokers"][0]["urls"] == {"default": first.url}


def test_a_send_that_never_arrives_whole_is_no_error_when_the_broker_stops(tmp_path: Path) -> None:
    with running(MODULE, settings(tmp_path, STOP_SECONDS="1")) as process:
        url = httpx.URL(process.url)
        head = (
            b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\n"
        )
        with socket.create_connection((url.host, url.port)) as client:
            client.sendall(head + b"Content-Length: 500\r\n\r\n{")
            assert httpx.get(f"{process.url}/healthz").status_code == 200  # and has seen the other
            assert process.stop() == 0

    assert [event for event in process.log if event.get("level") == "error"] == []


def test_who_creates_a_topic_finds_it_at_the_name_server_at_once(tmp_path: Path) -> None:
    """A program that knows of a topic may ask another process for its route, and send."""
    names = [f"topic-{number}" for number in range(30)]
    with forked("eruca_namesrv", NAMESRV) as namesrv:
        told = settings(tmp_path, NAMESRV_URLS=namesrv.url, AUTO_CREATE_TOPICS="false")
        with forked(MODULE, told) as broker, httpx.Client() as http:
            until(lambda: listed(namesrv.url, "brokers"))
            routes = []
            for name in names:
                created = http.put(f"{broker.url}/v1/topics/{name}", json={})
                routes.append(http.get(f"{namesrv.url}/v1/topics/{name}/route").status_code)
                assert created.status_code == 201
            with eruca.Client(namesrv.url) as client, client.producer() as producer:
                assert http.put(f"{broker.url}/v1/topics/orders", json={}).status_code == 201
                sent = producer.send(eruca.Message("orders", b"x"))
                assert http.delete(f"{broker.url}/v1/topics/orders").status_code == 204
            gone = http.get(f"{namesrv.url}/v1/topics/orders/route").status_code

    assert routes == [200] * len(names)
    assert sent.queue.topic == "orders"
    assert gone == 404
