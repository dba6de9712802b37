"""Readers of the whole log at a broker whose earlier segments are only in its tier."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

import eruca
from eruca.core.messages.log_block import LogRecord
from support.broker_groups import GROUP
from support.command_line import Eruca
from support.forked import forked_broker
from support.processes import ServiceProcess
from support.waiting import wait_until

COUNT: Final = 40
BODY: Final = "x" * 8_000


def settings_of(name_server: str, directory: Path) -> dict[str, str]:
    return {
        "ERUCA_BROKER_NAME": GROUP,
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_NAMESRV_URLS": name_server,
        "ERUCA_BROKER_STORE_DIR": str(directory / "store"),
        "ERUCA_BROKER_SEGMENT_BYTES": str(64 * 1024),
        "ERUCA_BROKER_TIER_URL": str(directory / "tier"),
    }


@contextmanager
def serving(name_server: str, settings: dict[str, str]) -> Iterator[ServiceProcess]:
    with forked_broker(settings) as process:
        wait_until(lambda: httpx.get(f"{process.url}/readyz").is_success)
        wait_until(lambda: process.url in httpx.get(f"{name_server}/v1/brokers").text)
        yield process


def log_of(process: ServiceProcess) -> dict[str, int | None]:
    found: dict[str, int | None] = httpx.get(f"{process.url}/v1/status").json()["log"]
    return found


def followed(name_server: str) -> list[LogRecord]:
    """Return all records of the log, as a follower from its beginning gets them."""
    found: list[LogRecord] = []
    with (
        eruca.Client([name_server]) as client,
        client.log_follower(GROUP) as follower,
    ):
        while follower.end_offset is None or (follower.next_offset or 0) < follower.end_offset:
            found += follower.read()
    return found


def bodies(records: list[LogRecord]) -> list[str]:
    return [one.decode().body.decode() for one in records if one.topic == "orders"]


def test_followers_and_backups_read_from_the_tier_on_and_lack_nothing(
    tmp_path: Path, name_server: str
) -> None:
    settings, command = settings_of(name_server, tmp_path), Eruca(name_server)
    sent = [f"{number} {BODY}" for number in range(COUNT)]
    with serving(name_server, settings) as process:
        with httpx.Client(base_url=f"{process.url}/v1") as client:
            for text in sent:
                body = {"body": {"text": text}}
                assert client.post("/topics/orders/messages", json=body).is_success
        before = followed(name_server)
        assert bodies(before) == sent
        process.stop(signal.SIGKILL)

    hours = ";".join(map(str, range(24)))
    settings |= {"ERUCA_BROKER_RETENTION_HOURS": "0", "ERUCA_BROKER_DELETE_HOURS": hours}
    with serving(name_server, settings) as process:
        # The last segment in the tier stays on the disk as well.
        wait_until(lambda: (log_of(process)["min_offset"] or 0) >= 3 * 64 * 1024)
        assert log_of(process)["begin_offset"] == 0
        process.stop(signal.SIGKILL)

    with serving(name_server, settings) as process:
        assert log_of(process)["begin_offset"] == 0, "it remembers the manifest"
        (tmp_path / "tier").rename(tmp_path / "away")
        with pytest.raises(eruca.UnavailableError):
            followed(name_server)
        (tmp_path / "away").rename(tmp_path / "tier")
        after = followed(name_server)
        assert bodies(after) == sent
        for one, other in zip(before, after, strict=False):
            assert (one.log_offset, one.raw) == (other.log_offset, other.raw)

        made = command.json("backup", "create", GROUP, f"--repository={tmp_path / 'copy'}")
        assert made["min_offset"] == 0

    restored = tmp_path / "restored"
    command("restore", GROUP, f"--repository={tmp_path / 'copy'}", f"--to={restored}")
    alone = settings | {"ERUCA_BROKER_STORE_DIR": str(restored), "ERUCA_BROKER_TIER_URL": ""}
    del alone["ERUCA_BROKER_RETENTION_HOURS"], alone["ERUCA_BROKER_DELETE_HOURS"]
    with serving(name_server, alone):
        assert bodies(followed(name_server)) == sent
