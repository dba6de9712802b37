"""The doctor: nothing is wrong with a healthy cluster, and each fault is named with its fix."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from support.command_line import Eruca


def test_the_doctor_finds_nothing_wrong_with_a_healthy_cluster_and_leaves_nothing(
    eruca: Eruca,
) -> None:
    found = eruca.json("doctor", "--write")

    assert found["healthy"]
    checks = {(f["subject"], f["check"]): f["verdict"] for f in found["findings"]}
    assert checks["broker-a", "round trip"] == checks["broker-b", "round trip"] == "ok"
    assert "fault" not in checks.values()
    for broker in ("broker-a", "broker-b"):  # the name server hears of it a little later
        assert "eruca-doctor" not in eruca("topic", "list", f"--broker={broker}").stdout


def test_the_doctor_goes_the_way_that_the_sdk_goes(namesrv_url: str) -> None:
    eruca = Eruca(namesrv_url)
    unused = ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy")
    eruca.environment |= dict.fromkeys(unused, "socks5://127.0.0.1:1") | {"NO_PROXY": "none.test"}

    found = eruca.json("doctor")

    [proxy] = [finding for finding in found["findings"] if finding["check"] == "proxy"]
    assert "bypass the environment's proxy" in proxy["detail"]


def test_the_doctor_names_what_is_broken_and_how_to_fix_it(namesrv_url: str) -> None:
    eruca = Eruca(f"{namesrv_url};http://127.0.0.1:1")

    done = eruca("doctor", code=1)

    assert "✗ http://127.0.0.1:1" in done.stdout
    assert "to fix it: start the service" in done.stdout
    assert done.stderr.endswith(", 1 fault\n")


def test_a_broker_is_not_taken_for_a_name_server(eruca: Eruca) -> None:
    eruca("topic", "create", "t-broker")
    url = eruca.json("route", "t-broker")["brokers"][0]["urls"]["0"]["default"]

    status = eruca("status", "--namesrv", url, code=1)
    listed = eruca("topic", "list", "--namesrv", url, code=1)

    assert f"expected a name server at {url}, found broker broker-a" in status.stdout
    assert f"{url}: the answer is not a name server's" in listed.stderr
    assert "pydantic" not in status.output + listed.output


def test_the_doctor_tells_a_stranger_and_a_broker_from_a_name_server(eruca: Eruca) -> None:
    eruca("topic", "create", "t-doctor")
    broker_url = eruca.json("route", "t-doctor")["brokers"][0]["urls"]["0"]["default"]
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as stranger:
        Thread(target=stranger.handle_request, daemon=True).start()
        urls = f"{broker_url};http://127.0.0.1:{stranger.server_port}"

        shown = " ".join(eruca("doctor", "--namesrv", urls, code=1).stdout.split())

    assert "give the address of a name server" in shown
    assert "not in Eruca's form" in shown
