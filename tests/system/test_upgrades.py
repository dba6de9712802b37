"""Upgrades from an earlier version, and the way back where RUNNING promises it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

import eruca
from support.broker_groups import GroupOfProcesses
from support.earlier_versions import GROUP_BEFORE, STORE_BEFORE, started_at
from support.forked import started_by_fork
from support.processes import ServiceProcess
from support.waiting import wait_until

Start = Callable[[dict[str, str]], ServiceProcess]


def before(settings: dict[str, str]) -> ServiceProcess:
    return started_at(STORE_BEFORE, "eruca_broker", settings)


def now(settings: dict[str, str]) -> ServiceProcess:
    process = started_by_fork("eruca_broker", settings)
    process.wait_until_listening()
    return process


@contextmanager
def serving(start: Start, store: Path) -> Iterator[httpx.Client]:
    settings = {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_NAMESRV_URLS": "",
        "ERUCA_BROKER_STORE_DIR": str(store),
    }
    with start(settings) as process, httpx.Client(base_url=process.url) as client:
        wait_until(lambda: client.get("/readyz").is_success)
        yield client
        assert process.stop() == 0


def send(client: httpx.Client, *texts: str) -> None:
    for text in texts:
        message = {"body": {"text": text}, "sharding_key": "one queue"}
        answer = client.post("/v1/topics/orders/messages", json=message)
        assert answer.status_code == 201, answer.text


def bodies(client: httpx.Client) -> list[str]:
    queues = client.get("/v1/topics/orders/queues").json()["queues"]
    urls = (f"/v1/topics/orders/queues/{q['queue_id']}/messages?offset=0" for q in queues)
    return [m["body"]["text"] for url in urls for m in client.get(url).json()["messages"]]


def test_a_store_goes_to_this_version_and_back(tmp_path: Path) -> None:
    sent: list[str] = []
    for start, texts in ((before, ["a", "b"]), (now, ["c", "d"]), (before, ["e"]), (now, ["f"])):
        with serving(start, tmp_path) as client:
            assert sent == (bodies(client) if sent else [])
            send(client, *texts)
            sent += texts
            assert bodies(client) == sent


def test_a_consumer_is_upgraded_before_its_broker(tmp_path: Path, name_server: str) -> None:
    settings = {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_NAMESRV_URLS": name_server,
        "ERUCA_BROKER_HEARTBEAT_SECONDS": "0.5",
        "ERUCA_BROKER_STORE_DIR": str(tmp_path / "store"),
    }
    handled: list[str] = []
    with started_at(GROUP_BEFORE, "eruca_broker", settings) as process:
        with httpx.Client(base_url=process.url) as http:
            wait_until(lambda: http.get("/readyz").is_success)
            send(http, "a", "b")
        with eruca.Client(name_server) as client:
            consumer = client.push_consumer("billing", start="earliest", wait_for_topics=True)
            consumer.subscribe("orders", handler=lambda message: handled.append(message.text()))
            with consumer:
                wait_until(lambda: sorted(handled) == ["a", "b"])
        assert process.stop() == 0


class Load:
    """A producer that sends all the time; each message is acknowledged or is a failure."""

    def __init__(self, namesrv_url: str) -> None:
        self.sent: list[str] = []
        self.failures: list[Exception] = []
        self._url = namesrv_url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with eruca.Client(self._url) as client, client.producer() as producer:
            number = 0
            while not self._stopping.is_set():
                body = f"message {number}"
                number += 1
                try:
                    producer.send(eruca.Message("orders", body))
                except eruca.ErucaError as error:
                    self.failures.append(error)
                else:
                    self.sent.append(body)

    def go_on(self) -> None:
        """Wait until more is acknowledged, or something has failed."""
        count = len(self.sent)
        wait_until(lambda: len(self.sent) > count + 10 or self.failures)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def test_a_group_is_upgraded_by_hand_over_without_a_failed_send_and_goes_back(
    tmp_path: Path, name_server: str
) -> None:
    group = GroupOfProcesses(tmp_path)
    more = {"namesrv_urls": name_server, "heartbeat_seconds": "0.5"}

    def replace(replica_id: int, *, is_before: bool) -> None:
        """Stop a replica, which hands over if it is the master; start the other version."""
        if replica_id in group.replicas:
            group.stop(replica_id)
        if is_before:
            settings = group.settings_of(replica_id, **more)
            group.adopt(replica_id, started_at(GROUP_BEFORE, "eruca_broker", settings))
        else:
            group.start(replica_id, **more)

    try:
        group.start_controller()
        for copies in (1, 2):
            replace(copies, is_before=True)
            group.await_master(copies=copies)
        with Load(name_server) as load:
            load.go_on()
            for is_before in (False, True):
                first = 3 - group.await_master(copies=2)
                for replica_id in (first, 3 - first):
                    replace(replica_id, is_before=is_before)
                    group.await_master(copies=2)
                    load.go_on()
        assert load.failures == []
        master = group.await_master(copies=2)
        assert set(load.sent) <= set(group.bodies(master))
        standby = 3 - master
        wait_until(lambda: group.bodies(standby) == group.bodies(master))
    finally:
        group.close()
