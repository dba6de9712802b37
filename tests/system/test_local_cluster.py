"""A local cluster as processes: it comes up, survives a death, and goes away in order."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from eruca_deploy.cluster import LocalCluster, StartError
from support.patience import PATIENCE_SECONDS
from support.postgres import reachable_directory
from support.waiting import until_told

pytestmark = pytest.mark.anyio

SMALL = {"ERUCA_BROKER_SEGMENT_BYTES": str(16 * 1024 * 1024)}
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


async def brokers_known_to(client: httpx.AsyncClient, namesrv_url: str) -> list[str]:
    answer = await client.get(f"{namesrv_url}/v1/brokers")
    return [group["broker_name"] for group in answer.json()["brokers"]]


async def test_every_name_server_knows_every_broker_once_the_cluster_is_started(
    client: httpx.AsyncClient,
) -> None:
    async with LocalCluster(brokers=2, namesrvs=2, settings=SMALL) as cluster:
        known = [await brokers_known_to(client, url) for url in cluster.namesrv_urls]

        assert known == [["broker-a", "broker-b"]] * 2
        pids = [cluster.pid(service.name) for service in cluster.plan.services]
        assert cluster.resident_bytes() > 0

    assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)


async def test_a_broker_that_dies_is_started_again_with_its_messages(
    client: httpx.AsyncClient,
) -> None:
    events: asyncio.Queue[str] = asyncio.Queue()
    async with LocalCluster(
        settings=SMALL, on_event=lambda name, text: events.put_nowait(f"{name} {text}")
    ) as cluster:
        messages = f"{cluster.broker_urls['broker-a']}/v1/topics/orders/messages"
        sent = await client.post(messages, json={"body": {"text": "order 17"}})
        assert sent.status_code == 201
        pid = cluster.pid("broker-a")
        assert pid is not None

        os.kill(pid, signal.SIGKILL)

        assert await asyncio.wait_for(events.get(), PATIENCE_SECONDS) == (
            "broker-a was killed by SIGKILL; restarting it in 0.5 s"
        )
        await cluster.ready("broker-a")
        queue = sent.json()["queue_id"]
        pulled = await client.get(
            f"{cluster.broker_urls['broker-a']}/v1/topics/orders/queues/{queue}/messages",
            params={"offset": 0},
        )
        assert [m["body"]["text"] for m in pulled.json()["messages"]] == ["order 17"]


async def test_a_setting_that_is_wrong_is_told_in_the_brokers_own_words() -> None:
    cluster = LocalCluster(settings={"ERUCA_BROKER_FLUSH_MODE": "sometimes"})

    with pytest.raises(StartError, match=r"broker-a exited with code 2[\s\S]*FLUSH_MODE"):
        await cluster.start()


async def test_processes_that_cannot_be_had_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    with pytest.raises(StartError, match=r"namesrv-1 cannot be started \(.*python"):
        await LocalCluster(settings=SMALL).start()


async def test_what_did_not_come_in_time_is_named() -> None:
    lacking = r"within 0\.1 s: (namesrv-1|broker-a) had (no answer:|503 from) http://127\.0\.0\.1"

    with pytest.raises(StartError, match=lacking):
        await LocalCluster(settings=SMALL, start_seconds=0.1).start()


@pytest.fixture
def directory() -> Iterator[Path]:
    with reachable_directory() as directory:
        yield directory


def command(directory: Path, *options: str) -> list[str]:
    module = "eruca_deploy.local"
    return [sys.executable, "-m", module, "--base-port=0", f"--data={directory}", *options]


async def test_the_command_runs_until_ctrl_c_and_stops_brokers_first(directory: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command(directory),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **SMALL, "COLUMNS": "120"},
    )
    assert process.stdout is not None
    lines: list[str] = []
    while not any("/v1/topics/orders/queues" in line for line in lines):  # the last to be printed
        lines.append((await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)).decode())
        assert lines[-1], "".join(lines)
    [told] = [line.strip() for line in lines if "DATABASE_URL=" in line]
    _, database_url = shlex.split(told)
    with psycopg.connect(database_url.removeprefix("DATABASE_URL=")) as connection:
        assert connection.execute("SELECT 17").fetchone() == (17,)

    process.send_signal(signal.SIGINT)

    rest, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, b"")
    shown = "".join(lines) + rest.decode()
    assert re.search(r"namesrv-1 +http://127\.0\.0\.1:\d+ ", shown)
    stops = re.findall(r"^(broker-a|namesrv-1) +│.*\bstopped\b", shown, re.MULTILINE)
    assert stops == ["broker-a", "namesrv-1"]


@contextmanager
def shown_on(output: int, directory: Path, encoding: str = "utf-8") -> Iterator[psutil.Popen]:
    """Run the command with a broker; its output is somewhere whence it is not read."""
    process = psutil.Popen(
        command(directory, "--no-txn-checker", "--no-query"),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, **SMALL, "PYTHONIOENCODING": encoding},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait(PATIENCE_SECONDS)


async def until_it_runs(client: httpx.AsyncClient, process: psutil.Popen) -> None:
    """Return once the command's broker is ready."""

    async def is_ready() -> bool:
        for child in process.children():
            for connection in child.net_connections("tcp"):
                url = f"http://127.0.0.1:{connection.laddr.port}"
                if connection.status == psutil.CONN_LISTEN and "eruca_broker" in child.cmdline():
                    return (await client.get(f"{url}/readyz")).status_code == httpx.codes.OK
        return False

    await until_told(is_ready, bool)


async def test_a_terminal_that_is_closed_stops_everything_in_order(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    terminal, its_side = os.openpty()
    with shown_on(its_side, tmp_path) as process:
        os.close(its_side)
        await until_it_runs(client, process)

        os.close(terminal)
        for _ in range(2):  # from the shell, and from the kernel when the shell has ended
            process.send_signal(signal.SIGHUP)

        code = await asyncio.to_thread(process.wait, PATIENCE_SECONDS)
    assert code == 0
    assert not (tmp_path / "broker-a" / "abort").exists()  # it was not killed


@pytest.mark.parametrize(
    ("output", "encoding"),
    [("/dev/full", "utf-8"), ("/dev/null", "latin-1")],
    ids=["no room", "other characters"],
)
async def test_what_cannot_be_shown_ends_nothing(
    client: httpx.AsyncClient, tmp_path: Path, output: str, encoding: str
) -> None:
    shown = os.open(output, os.O_WRONLY)
    with shown_on(shown, tmp_path, encoding) as process:
        os.close(shown)
        await until_it_runs(client, process)

        process.terminate()

        await asyncio.to_thread(process.wait, PATIENCE_SECONDS)
    assert not (tmp_path / "broker-a" / "abort").exists()
