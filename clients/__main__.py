"""``python -m clients``: generate every client, compile it, and send a message through it.

Exit code 0: all succeeded. 1: one failed. 2: none could be tried, because tools are missing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clients.languages import CLIENTS, DOCUMENTS, Client
from eruca_deploy.cluster import LocalCluster

HERE: Final = Path(__file__).parent
_KEPT_DOCUMENTS: Final = HERE.parent / "tests" / "contract" / "openapi"
_COMMAND_SECONDS_MAX: Final = 900  # the first run fetches generators and libraries
_OUTPUT_TAIL_SIZE: Final = 3000  # characters of a failed command's output in the report


class CommandFailedError(Exception):
    """A generator, a compiler or a client failed; the text has its command and output."""


def main() -> int:
    """Try every client; return the exit code."""
    options = _options()
    chosen = [client for client in CLIENTS if options.only.lower() in client.name.lower()]
    able = []
    for client in chosen:
        missing = [tool for tool in client.tools if shutil.which(tool) is None]
        if missing:
            print(f"{client.name}: left out, {', '.join(missing)} not installed", flush=True)
        else:
            able.append(client)
    if not able:
        print("no client can be tried here", file=sys.stderr)
        return 2
    return asyncio.run(_try_all(able))


async def _try_all(clients: Sequence[Client]) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(prefix="eruca-clients-") as directory:
        async with LocalCluster(data_dir=Path(directory) / "cluster", brokers=1) as cluster:
            [url] = cluster.broker_urls.values()
            for number, client in enumerate(clients):
                started = time.monotonic()
                work = Path(directory) / f"client-{number}"
                try:
                    message_id = await asyncio.to_thread(_try, client, work, url)
                except CommandFailedError as error:
                    failed += 1
                    print(f"{client.name}: FAILED\n{error}", flush=True)
                else:
                    seconds = time.monotonic() - started
                    print(f"{client.name}: {message_id} went round ({seconds:.0f} s)", flush=True)
    print(f"{len(clients) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _try(client: Client, work: Path, url: str) -> str:
    """Generate, compile and run *client* in *work*; return its output, a message's id."""
    shutil.copytree(HERE / client.folder, work)
    (work / "documents").mkdir()
    for document in DOCUMENTS:
        shutil.copy(_KEPT_DOCUMENTS / f"{document}.json", work / "documents")
    for command in client.build:
        _run(command, work)
    printed = _run([*client.run, url], work).split()
    if len(printed) != 1:
        raise CommandFailedError(f"{client.name}: expected one message id, found {printed}")
    return printed[0]


def _run(command: Sequence[str], work: Path) -> str:
    """Run *command* and return its output."""
    try:
        done = subprocess.run(
            command,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
            env={**os.environ, "NO_COLOR": "1", "GOFLAGS": "-mod=mod"},
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailedError(
            f"{' '.join(command)}: timed out after {_COMMAND_SECONDS_MAX} s"
        ) from error
    if done.returncode:
        output = (done.stdout + done.stderr)[-_OUTPUT_TAIL_SIZE:]
        raise CommandFailedError(f"{' '.join(command)}\n{output}")
    return done.stdout


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m clients", description="Generate clients in other languages and use them."
    )
    parser.add_argument("--only", default="", help="a part of a client's name, such as 'java'")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
