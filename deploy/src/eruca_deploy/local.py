"""``eruca-local``, or ``python -m eruca_deploy.local``: run a local cluster until Ctrl-C.

Exit codes: 0 after Ctrl-C, SIGTERM or the end of its terminal; 1 if it could not start (a port in
use, another cluster's data, a child that ended); 2 for invalid options. A second Ctrl-C kills at
once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from eruca_deploy.broker_count import suitable_broker_count, usable_processors
from eruca_deploy.cluster import LocalCluster, StartError
from eruca_deploy.console import ClusterConsole, ready_report
from eruca_deploy.data_lock import DataTakenError
from eruca_deploy.plan import (
    BROKER_COUNT_MAX,
    CONSOLE_COUNT_MAX,
    CONTROLLER_COUNT_MAX,
    GOVERNED,
    NAMESRV_COUNT_MAX,
    PORT_MAX,
    QUERY_COUNT_MAX,
    REPLICA_COUNT_MAX,
    TXN_CHECKER_COUNT_MAX,
    PlanError,
)
from eruca_deploy.ports import PortTakenError

# The children write to a pipe, but people read it: coloured lines, unless set otherwise.
_LOG_STYLES: Final = (
    "ERUCA_NAMESRV_LOG_STYLE",
    "ERUCA_BROKER_LOG_STYLE",
    "ERUCA_TXN_CHECKER_LOG_STYLE",
    "ERUCA_QUERY_LOG_STYLE",
    "ERUCA_CONTROLLER_LOG_STYLE",
    "ERUCA_CONSOLE_LOG_STYLE",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster; return the exit code."""
    options = _parser().parse_args(arguments)
    console = ClusterConsole()
    for name, option in GOVERNED.items():
        if name in os.environ:
            console.say(f"{name} is ignored here; use {option}")
    brokers = options.brokers
    if brokers is None:
        suitable = suitable_broker_count(
            options.data.absolute(), replicas=options.replicas, processors=usable_processors()
        )
        console.say(str(suitable))
        brokers = suitable.brokers
    cluster = LocalCluster(
        brokers=brokers,
        replicas=options.replicas,
        namesrvs=options.namesrvs,
        txn_checkers=options.txn_checkers,
        queries=options.queries,
        controllers=options.controllers,
        consoles=options.consoles,
        data_dir=options.data,
        is_secure=options.secure,
        base_port=options.base_port,
        settings={name: os.environ.get(name, "console") for name in _LOG_STYLES},
        on_line=console.child_line,
        on_event=console.child_event,
    )
    try:
        return asyncio.run(_run(cluster, console, options.data.absolute()))
    except (PlanError, PortTakenError, DataTakenError, StartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def default_data_dir(environment: Mapping[str, str]) -> Path:
    """Return the user's data directory, according to the XDG base directories."""
    base = environment.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "eruca" / "local"


async def _run(cluster: LocalCluster, console: ClusterConsole, data_dir: Path) -> int:
    stop = asyncio.Event()

    def on_ctrl_c() -> None:
        if stop.is_set():
            console.say("killing")
            cluster.kill_all_now()
        stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, on_ctrl_c)
    # These two never kill: a shell whose terminal is closed sends SIGHUP, and then the kernel does,
    # too; `timeout` sends SIGTERM to the process and to its group.
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    console.on_reader_gone = stop.set

    console.say("starting")
    started_at = time.perf_counter()
    starting = asyncio.create_task(cluster.start())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()  # start() stops what it has started so far
        await asyncio.wait([starting])
        stopped.cancel()
        return 0
    try:
        await starting
        report = ready_report(
            cluster.plan,
            data_dir,
            seconds=time.perf_counter() - started_at,
            resident_bytes=cluster.resident_bytes(),
            groups=await cluster.groups(),
            client_environment=cluster.client_environment,
            environment=os.environ,
        )
        console.print(report, crop=False)
        await stopped
        console.say("stopping, name servers last (Ctrl-C again: kill)")
    finally:
        stopped.cancel()
        await cluster.stop()
    console.say("stopped")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eruca-local",
        description="Run a local Eruca cluster until Ctrl-C. ERUCA_* settings are passed on.",
    )
    parser.add_argument(
        "--version", action="version", version=f"eruca-local {version('eruca-deploy')}"
    )
    parser.add_argument(
        "--brokers",
        type=_count_or_auto(BROKER_COUNT_MAX),
        default=1,
        metavar="N",
        help=f"brokers, 1 to {BROKER_COUNT_MAX}, or auto: one for each processor, with --replicas "
        "fewer, but never fewer than --data has (default 1)",
    )
    parser.add_argument(
        "--replicas",
        type=_count(REPLICA_COUNT_MAX),
        default=1,
        metavar="N",
        help=f"replicas of each broker, 1 to {REPLICA_COUNT_MAX} (default 1: a single copy of each "
        "message)",
    )
    parser.add_argument(
        "--namesrvs",
        type=_count(NAMESRV_COUNT_MAX),
        default=1,
        metavar="N",
        help=f"name servers, 1 to {NAMESRV_COUNT_MAX} (default 1)",
    )
    checkers = parser.add_mutually_exclusive_group()
    checkers.add_argument(
        "--txn-checkers",
        type=_count(TXN_CHECKER_COUNT_MAX),
        default=1,
        metavar="N",
        help=f"transaction checkers, 1 to {TXN_CHECKER_COUNT_MAX} (default 1)",
    )
    checkers.add_argument(
        "--no-txn-checker",
        dest="txn_checkers",
        action="store_const",
        const=0,
        help="no transaction checker",
    )
    queries = parser.add_mutually_exclusive_group()
    queries.add_argument(
        "--queries",
        type=_count(QUERY_COUNT_MAX),
        default=1,
        metavar="N",
        help=f"query services, 1 to {QUERY_COUNT_MAX} (default 1)",
    )
    queries.add_argument(
        "--no-query",
        dest="queries",
        action="store_const",
        const=0,
        help="no query service; without transaction checkers too, no PostgreSQL is started",
    )
    parser.add_argument(
        "--controllers",
        type=_count(CONTROLLER_COUNT_MAX),
        default=0,
        metavar="N",
        help=f"controllers, 1 to {CONTROLLER_COUNT_MAX} (default: one with --replicas, else none)",
    )
    consoles = parser.add_mutually_exclusive_group()
    consoles.add_argument(
        "--consoles",
        type=_count(CONSOLE_COUNT_MAX),
        default=1,
        metavar="N",
        help=f"consoles, 1 to {CONSOLE_COUNT_MAX} (default 1)",
    )
    consoles.add_argument(
        "--no-console",
        dest="consoles",
        action="store_const",
        const=0,
        help="no console",
    )
    parser.add_argument(
        "--data",
        type=_directory,
        default=default_data_dir(os.environ),
        metavar="DIR",
        help="directory of the stores (default %(default)s)",
    )
    parser.add_argument(
        "--base-port",
        type=_base_port,
        default=None,
        metavar="P",
        help="first port: name servers, then brokers, transaction checkers, query services, "
        "controllers and consoles; 0: free ports (default: from 9876, 10911, 10921, 10931, 9878 "
        "and 10941 on)",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="services speak TLS and admit callers by keys, with certificates in tls/ and rules "
        "and keys in auth/ of --data; the lines for clients are printed",
    )
    return parser


def _count(maximum: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not (text.isdecimal() and 1 <= int(text) <= maximum):
            raise argparse.ArgumentTypeError(
                f"expected a number from 1 to {maximum}, found {text!r}"
            )
        return int(text)

    return count


def _count_or_auto(maximum: int) -> Callable[[str], int | None]:
    """Return the type of an option whose value is a number, or ``auto``: None."""

    def count(text: str) -> int | None:
        try:
            return None if text == "auto" else _count(maximum)(text)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(
                f"expected a number from 1 to {maximum} or 'auto', found {text!r}"
            ) from None

    return count


def _directory(text: str) -> Path:
    if not text:  # probably an unset variable: don't use the current directory
        raise argparse.ArgumentTypeError("expected a directory, found ''")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~NAME of an unknown user
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error


def _base_port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {PORT_MAX}, found {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
