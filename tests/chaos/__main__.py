"""``python -m chaos``: torment clusters, and judge what their clients were told.

Each round is a run of five minutes at most with a cluster of its own. The exit code is 1 if any
checker finds an anomaly. ``--check FILE`` judges the history of an earlier run.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from random import SystemRandom
from typing import Final

from chaos.arbiters import ARBITERS
from chaos.checkers import check
from chaos.cluster import Shape, StartError
from chaos.history import History
from chaos.mutations import MUTATIONS
from chaos.nemeses import NEMESES
from chaos.report import page_of, text_of
from chaos.run import Plan, run
from chaos.schedules import SCHEDULES, follow_schedule

ROUND_SECONDS_MAX: Final = 300.0
ATTEMPTS_MAX: Final = 3


def main() -> int:
    """Run, and return the exit code."""
    arguments = _arguments()
    if arguments.mutations:
        return int(not _are_found(arguments.directory))
    if arguments.check is not None:
        return int(_judge(History.read(arguments.check), arguments.check.parent))
    seed = arguments.seed if arguments.seed is not None else SystemRandom().randrange(2**32)
    deadline = time.monotonic() + arguments.minutes * 60
    is_broken = False
    number = 0
    while number == 0 or time.monotonic() < deadline:
        seconds = max(min(ROUND_SECONDS_MAX, deadline - time.monotonic()), 5.0)
        directory = _directory(arguments.directory, f"seed-{seed + number}")
        shape = Shape(
            brokers=tuple(f"broker-{'abcdefgh'[index]}" for index in range(arguments.groups)),
            replicas=arguments.replicas,
            controllers=arguments.controllers,
            min_in_sync=arguments.min_in_sync,
            flush_mode=arguments.flush_mode,
            arbiter=arguments.arbiter,
            retention_seconds=arguments.retention_seconds,
            body_size=arguments.body_size,
        )
        plan = Plan(
            seed=seed + number,
            seconds=seconds,
            shape=shape,
            nemeses=arguments.nemesis or (),
            mutation=arguments.mutation,
            load=arguments.load,
        )
        print(f"seed {plan.seed}: {seconds:.0f} s in {directory}", flush=True)
        has_anomalies = _judge(asyncio.run(run(plan, directory)), directory)
        if not has_anomalies and not arguments.keep:
            shutil.rmtree(directory / "data")  # the history and the logs stay
        is_broken = is_broken or has_anomalies
        number += 1
    return int(is_broken)


def _are_found(parent: Path | None) -> bool:
    """Run each schedule as it is, and with each rule broken that it shows; tell if all is as said.

    On a busy machine a step may come too late, or show nothing. Then the schedule begins again.
    """
    courses = [(name, "") for name in SCHEDULES]
    courses += [(mutation.schedule, name) for name, mutation in MUTATIONS.items()]
    is_as_said = True
    for schedule, name in courses:
        wanted = set(MUTATIONS[name].checkers) if name else set[str]()
        begun = time.monotonic()
        for _ in range(ATTEMPTS_MAX):
            found = _found_by(schedule, name, parent)
            is_right = found is not None and bool(found & wanted if name else not found)
            if is_right or (found and not name):
                break
        is_as_said = is_as_said and is_right
        text = (
            "a step came too late, or a start failed"
            if found is None
            else ", ".join(sorted(found)) or "nothing"
        )
        seconds = f"{time.monotonic() - begun:.0f} s"
        verdict = "ok" if is_right else "NOT AS SAID"
        print(f"{verdict:<12}{schedule}, {name or 'no mutation'}: {text} ({seconds})", flush=True)
    return is_as_said


def _found_by(schedule: str, mutation: str, parent: Path | None) -> set[str] | None:
    """Return the checkers that find something; None if a step came too late, or a start failed."""
    directory = _directory(parent, f"schedule-{schedule}-{mutation}".replace(" ", "-"))
    try:
        history = asyncio.run(follow_schedule(schedule, directory, mutation=mutation))
    except (TimeoutError, StartError):  # another process may have taken a port
        return None
    return {checker for checker, anomalies in check(history).items() if anomalies}


def _judge(history: History, directory: Path) -> bool:
    """Print and write the report; return whether there is an anomaly."""
    verdicts = check(history)
    (directory / "report.html").write_text(page_of(history, verdicts))
    print(text_of(history, verdicts))
    print(f"{directory / 'report.html'}", flush=True)
    return any(verdicts.values())


def _directory(parent: Path | None, name: str) -> Path:
    parent = parent or Path(tempfile.gettempdir()) / "eruca-chaos"
    directory = parent / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description="Torment broker groups.")
    parser.add_argument("--minutes", type=float, default=5.0, help="time in which faults begin")
    parser.add_argument("--seed", type=int, help="of all choices; default: a random one")
    parser.add_argument("--groups", type=int, default=2, help="broker groups")
    parser.add_argument("--replicas", type=int, default=3, help="replicas of each group")
    parser.add_argument("--controllers", type=int, default=2)
    parser.add_argument(
        "--arbiter", choices=ARBITERS, default="postgres", help="store of the controllers"
    )
    parser.add_argument("--min-in-sync", type=int, default=2)
    parser.add_argument("--flush-mode", choices=("async", "sync"), default="async")
    parser.add_argument(
        "--retention-seconds", type=float, default=0.0, help="then segments are deleted; 0: never"
    )
    parser.add_argument("--body-size", type=int, default=0, help="characters of a text at least")
    parser.add_argument("--load", type=int, default=1, help="senders of each kind for each group")
    parser.add_argument(
        "--nemesis",
        action="append",
        type=_nemesis,
        metavar="NAME",
        help=f"fault to choose from, a+b for two at a time: {', '.join(NEMESES)}",
    )
    parser.add_argument("--mutation", default="", choices=["", *sorted(MUTATIONS)])
    parser.add_argument(
        "--mutations", action="store_true", help="show that each mutation is found; 5 minutes"
    )
    parser.add_argument("--directory", type=Path, help="for histories, logs and stores")
    parser.add_argument("--keep", action="store_true", help="keep the stores of sound runs, too")
    parser.add_argument("--check", type=Path, metavar="FILE", help="judge a history again")
    return parser.parse_args()


def _nemesis(text: str) -> str:
    unknown = [name for name in text.split("+") if name not in NEMESES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown nemesis {unknown[0]!r}; valid options: {', '.join(NEMESES)}"
        )
    return text


if __name__ == "__main__":
    raise SystemExit(main())
