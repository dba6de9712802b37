"""A full disk under a running broker: it says so, goes on reading, loses nothing, and recovers.

Once by a limit on the size of its files, which the kernel enforces anywhere, and once by a file
system without room, where this process may mount one.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_chassis.running.serving import START_EXIT_CODE
from support.answers import check_answers
from support.disks import free_size, small_disk
from support.forked import forked_broker, forked_to_the_end
from support.log_model import LogModel, read_log
from support.waiting import wait_until

SEGMENT_SIZE = 256 * 1024
BODY_SIZE = 3_000
RECOVERY_SECONDS = 30.0  # the broker looks for room every second


def settings(directory: Path, flush_mode: str) -> dict[str, str]:
    return {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_STORE_DIR": str(directory),
        "ERUCA_BROKER_NAMESRV_URLS": "",
        "ERUCA_BROKER_FLUSH_MODE": flush_mode,
        "ERUCA_BROKER_SEGMENT_BYTES": str(SEGMENT_SIZE),
        "ERUCA_BROKER_QUEUE_FILE_ENTRIES": "100",
        "ERUCA_BROKER_INDEX_SLOTS": "64",
        "ERUCA_BROKER_INDEX_ENTRIES": "200",
        # Here the disk must get full: nothing may be deleted, nor refused before.
        "ERUCA_BROKER_DISK_HIGH_RATIO": "1",
        "ERUCA_BROKER_DISK_FORCED_RATIO": "1",
        "ERUCA_BROKER_DISK_REFUSE_RATIO": "1",
    }


class Producer:
    """Sends messages one by one, and knows those that were acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], str] = {}  # queue, offset → body
        self._number = 0

    def send(self, url: str) -> httpx.Response:
        self._number += 1
        queue_id = self._number % 4
        body = f"{self._number}:".ljust(BODY_SIZE, ".")
        answer = httpx.post(
            f"{url}/v1/topics/orders/messages?queue_id={queue_id}",
            json={"body": {"text": body}, "keys": ["k"]},
        )
        if answer.status_code == 201:
            self.acknowledged[queue_id, answer.json()["queue_offset"]] = body
        return answer

    def send_until_refused(self, url: str) -> httpx.Response:
        while (answer := self.send(url)).status_code == 201:
            pass
        return answer

    def send_until_accepted(self, url: str) -> None:
        def is_accepted() -> bool:
            answer = self.send(url)
            assert answer.status_code == 201 or is_disk_full(answer)
            return answer.status_code == 201

        wait_until(is_accepted, within_seconds=RECOVERY_SECONDS)

    def check(self, url: str, directory: Path) -> None:
        """Check that the broker has all that was acknowledged, and agrees with its log."""
        model = LogModel(read_log(directory))
        for (queue_id, offset), body in self.acknowledged.items():
            assert model.queues["orders", queue_id][offset].body.decode() == body
        check_answers(url, model)


def is_disk_full(answer: httpx.Response) -> bool:
    problem = answer.json()
    assert int(answer.headers["retry-after"]) > 0
    return answer.status_code == 503 and problem["code"] == "disk-full" and problem["retryable"]


def members_of(client: httpx.Client, group: str) -> list[str]:
    listed = client.get(f"/groups/{group}/members").json()["members"]
    return [member["client_id"] for member in listed]


@pytest.mark.parametrize(
    ("flush_mode", "limit"),
    [("sync", SEGMENT_SIZE // 3), ("async", 1_500)],
    ids=["log", "queues"],
)
def test_files_that_may_not_grow_are_a_full_disk(
    tmp_path: Path, flush_mode: str, limit: int
) -> None:
    """The log hits the larger limit; the smaller one is hit by queue and index files as well."""
    producer = Producer()
    with forked_broker(settings(tmp_path, flush_mode)) as process:
        assert producer.send(process.url).status_code == 201
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, before[1]))

        refused = producer.send_until_refused(process.url)

        assert is_disk_full(refused)
        topics = httpx.get(f"{process.url}/v1/topics").json()["topics"]
        assert [topic["topic"] for topic in topics] == ["orders"]
        created = httpx.put(f"{process.url}/v1/topics/more", json={})
        assert is_disk_full(created)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        producer.send_until_accepted(process.url)
        producer.check(process.url, tmp_path)
        assert process.stop() == 0
    with forked_broker(settings(tmp_path, flush_mode)) as process:
        producer.check(process.url, tmp_path)


def test_members_of_every_group_are_forgotten_though_nothing_can_be_written(
    tmp_path: Path,
) -> None:
    groups = ["g1", "g2", "g3"]
    with (
        forked_broker(settings(tmp_path, "async")) as process,
        httpx.Client(base_url=f"{process.url}/v1") as client,
    ):
        assert Producer().send(process.url).status_code == 201
        for group in groups:
            for name, seconds in (("stays", 60), ("dies", 3)):
                beat = client.put(
                    f"/groups/{group}/members/{name}",
                    json={
                        "incarnation": "1",
                        "subscriptions": [{"topic": "orders"}],
                        "session_seconds": seconds,
                    },
                )
                assert beat.status_code == 201
            locks = client.post(
                f"/groups/{group}/locks",
                json={
                    "client_id": "dies",
                    "incarnation": "1",
                    "queues": [{"topic": "orders", "queue_id": 0}],
                },
            )
            assert locks.json()["locks"]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        assert is_disk_full(Producer().send_until_refused(process.url))

        wait_until(
            lambda: all(members_of(client, group) == ["stays"] for group in groups),
            within_seconds=RECOVERY_SECONDS,
        )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with small_disk(tmp_path / "disk", 24 * SEGMENT_SIZE) as directory:
            yield directory
    except PermissionError:
        pytest.skip("mounting a file system takes privileges that this process does not have")


def fill(directory: Path) -> Callable[[], None]:
    """Take all the room there is; return what gives it back."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while room := free_size(directory):
            file.write(bytes(min(room, 1 << 20)))
    return ballast.unlink


def test_a_disk_without_room_stops_nothing_but_writing(disk: Path) -> None:
    producer, store = Producer(), disk / "store"
    with forked_broker(settings(store, "sync")) as process:
        assert producer.send(process.url).status_code == 201
        make_room = fill(disk)

        assert is_disk_full(producer.send_until_refused(process.url))

        found = httpx.get(f"{process.url}/v1/topics/orders/messages?key=k&limit=64").json()
        assert found["messages"]
        make_room()
        producer.send_until_accepted(process.url)
        producer.check(process.url, store)
        make_room = fill(disk)
        assert is_disk_full(producer.send_until_refused(process.url))
        process.stop(signal.SIGKILL)
    make_room()
    with forked_broker(settings(store, "sync")) as process:
        producer.check(process.url, store)
        producer.send_until_accepted(process.url)
        producer.check(process.url, store)


@pytest.mark.parametrize("flush_mode", ["sync", "async"])
def test_checkpoints_go_on_once_there_is_room_and_the_stop_is_orderly(
    disk: Path, flush_mode: str
) -> None:
    producer, store = Producer(), disk / "store"
    # So many that the index's header has a page of its own, for which there will be no room.
    slots = {"ERUCA_BROKER_INDEX_SLOTS": "4096"}
    with forked_broker(settings(store, flush_mode) | slots) as process:

        def failed_checkpoints() -> list[dict[str, Any]]:
            return [event for event in process.errors() if event.get("loop") == "checkpoint"]

        assert producer.send(process.url).status_code == 201
        # A look-up of a key adds it to the index, so that only the header is left.
        assert httpx.get(f"{process.url}/v1/topics/orders/messages?key=k").json()["messages"]
        make_room = fill(disk)
        wait_until(lambda: bool(failed_checkpoints()), within_seconds=RECOVERY_SECONDS)
        [failed] = failed_checkpoints()
        assert "No space left on device" in failed["reason"]
        assert "exception" not in failed
        assert is_disk_full(producer.send_until_refused(process.url))
        make_room()
        producer.send_until_accepted(process.url)

        def is_noted() -> bool:
            noted = read_checkpoint(store)
            end = httpx.get(f"{process.url}/v1/status").json()["log"]["max_offset"]
            return noted is not None and noted.projected_offset == end

        wait_until(is_noted, within_seconds=2 * RECOVERY_SECONDS)
        assert process.stop() == 0
    assert not (store / "abort").exists()
    assert "store could not be closed in order" not in [e.get("event") for e in process.log]
    with forked_broker(settings(store, flush_mode) | slots) as process:
        producer.check(process.url, store)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("count", [1, 83], ids=["queues have no room", "a segment is full"])
def test_a_broker_that_is_restarted_on_a_full_disk_reads_and_takes_writes_once_there_is_room(
    disk: Path, count: int, end: signal.Signals
) -> None:
    producer, store = Producer(), disk / "store"
    with forked_broker(settings(store, "async")) as process:
        for _ in range(count):
            assert producer.send(process.url).status_code == 201
        fill(disk)
        assert is_disk_full(producer.send_until_refused(process.url))
        process.stop(end)
    (disk / "ballast").unlink()
    make_room = fill(disk)  # what stopping has freed is taken, too

    with forked_broker(settings(store, "async")) as process:
        assert httpx.get(f"{process.url}/readyz").status_code == 200
        assert is_disk_full(producer.send(process.url))
        producer.check(process.url, store)
        status = httpx.get(f"{process.url}/v1/status").json()
        assert not status["is_writable"]
        assert "No space left on device" in status["refusal"]
        make_room()
        producer.send_until_accepted(process.url)
        producer.check(process.url, store)
        assert process.stop() == 0
    with forked_broker(settings(store, "async")) as process:
        producer.check(process.url, store)


def test_a_disk_that_is_full_from_the_beginning_is_said_and_no_other_one_advised(
    disk: Path,
) -> None:
    fill(disk)

    code, text = forked_to_the_end("eruca_broker", settings(disk / "store", "async"))

    assert code == START_EXIT_CODE
    assert "o room" in text or "No space left" in text
    assert "STORE_DIR" not in text
