"""``eruca-broker --restore-from-tier`` as a program: killed in the middle, run again, served."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from eruca_broker.restoring import EXIT_CODE
from eruca_chassis.running.serving import START_EXIT_CODE
from support.forked import forked_broker, forked_to_the_end
from support.processes import clean_environment
from support.waiting import wait_until

SEGMENT_SIZE = 64 * 1024
COUNT = 40


def settings_of(tmp_path: Path, store: str) -> dict[str, str]:
    return {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_NAMESRV_URLS": "",
        "ERUCA_BROKER_STORE_DIR": str(tmp_path / store),
        "ERUCA_BROKER_SEGMENT_BYTES": str(SEGMENT_SIZE),
        "ERUCA_BROKER_TIER_URL": str(tmp_path / "tier"),
        "ERUCA_BROKER_DISK_HIGH_RATIO": "1",
        "ERUCA_BROKER_DISK_FORCED_RATIO": "1",
        "ERUCA_BROKER_DISK_REFUSE_RATIO": "1",
    }


def texts(client: httpx.Client) -> list[str]:
    """Return the numbers of all messages, pulled from offset 0 on."""
    offset, found = 0, list[str]()
    while True:
        answer = client.get(
            "/topics/orders/queues/0/messages", params={"offset": offset}
        ).raise_for_status()
        page = answer.json()
        if not page["messages"]:
            return found
        found += [one["body"]["text"].partition(" ")[0] for one in page["messages"]]
        offset = page["next_offset"]


def tiered(client: httpx.Client) -> int:
    """Return the tier's end once it has all closed segments."""
    status = client.get("/status").json()
    end = status["tier"]["max_offset"] or 0
    has_all = status["log"]["flushed_offset"] - end < 2 * SEGMENT_SIZE
    return end if has_all and not status["tier"]["behind_bytes"] else 0


def test_a_killed_restore_goes_on_and_the_broker_serves_what_the_tier_has(tmp_path: Path) -> None:
    with (
        forked_broker(settings_of(tmp_path, "store")) as process,
        httpx.Client(base_url=f"{process.url}/v1") as client,
    ):
        client.put("/topics/orders", json={"read_queue_count": 1, "write_queue_count": 1})
        for number in range(COUNT):
            body = {"body": {"text": f"{number} {'x' * 8_000}"}}
            client.post("/topics/orders/messages", json=body).raise_for_status()
        end = wait_until(lambda: tiered(client))
    new = settings_of(tmp_path, "new")

    # The restore hangs in the oldest segment: instead of the object there is a pipe.
    oldest = min((tmp_path / "tier").glob("*/*/*/segments/*.log"))
    kept = oldest.rename(tmp_path / "kept")
    os.mkfifo(oldest)
    restoring = subprocess.Popen(
        [sys.executable, "-m", "eruca_broker", "--restore-from-tier"],
        env={**clean_environment(), **new},
        stderr=subprocess.PIPE,
    )
    unfinished = tmp_path / "new" / "commitlog.unfinished"
    wait_until(lambda: (unfinished / f"{0:020d}").exists())
    restoring.send_signal(signal.SIGKILL)
    _, errors = restoring.communicate()
    assert errors == b""
    code, said = forked_to_the_end("eruca_broker", new)
    assert code == START_EXIT_CODE
    assert "a restore has not finished; run it again" in said

    oldest.unlink()
    kept.rename(oldest)
    done = subprocess.run(
        [sys.executable, "-m", "eruca_broker", "--restore-from-tier"],
        env={**clean_environment(), **new},
        check=True,
        capture_output=True,
        text=True,
    )
    assert f"log offsets 0 to {end}, from manifest" in done.stdout
    code, said = forked_to_the_end("eruca_broker", new, "--restore-from-tier")
    assert code == EXIT_CODE
    assert "is not empty: it has" in said
    with (
        forked_broker(new) as process,
        httpx.Client(base_url=f"{process.url}/v1") as client,
    ):
        found = texts(client)
        assert found == [str(number) for number in range(len(found))]
        assert COUNT // 2 < len(found) < COUNT
        status = client.get("/status").json()
        assert status["log"]["min_offset"] == 0
