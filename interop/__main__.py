"""``python -m interop``: run every scenario and print a table of checks.

Exit code 0: both sides agree in everything. 1: they do not. 2: it cannot run here.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from interop.bench import VARIANTS, Bench
from interop.checks import Checks, SectionFailedError
from interop.migrating import second_copy, slave
from interop.processes import has_address
from interop.replicas import replicas
from interop.scenarios import delayed_messages, eruca_writes, rocketmq_writes
from interop.toolchain import CannotRunError, Toolchain, prepare

MESSAGES_MIN: Final = 1_500  # fewer do not fill a segment, and some checks need two
SCENARIOS: Final = {
    "rocketmq-writes": rocketmq_writes,
    "eruca-writes": eruca_writes,
    "delayed": delayed_messages,
    "replicas": replicas,
    "second-copy": second_copy,
    "slave": slave,
}
_IN_ONE_VARIANT: Final = ("replicas", "second-copy", "slave")  # "stopped"; they kill by themselves


def main() -> int:
    """Run the scenarios; return the exit code."""
    options = _options()
    try:
        toolchain = prepare()
    except CannotRunError as error:
        print(f"interoperation cannot be checked here: {error}", file=sys.stderr)
        return 2
    directory = options.keep or Path(tempfile.mkdtemp(prefix="eruca-interop-"))
    checks = Checks()
    try:
        _run(checks, toolchain, directory.absolute(), options)
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    checks.summary()
    return 0 if checks.all_agree else 1


def _run(
    checks: Checks, toolchain: Toolchain, directory: Path, options: argparse.Namespace
) -> None:
    for variant in VARIANTS:
        if options.only not in (None, variant.name):
            continue
        if not has_address(variant.host):
            print(f"\n[{variant.name}] skipped: this machine has no {variant.host}")
            continue
        bench = Bench(checks, toolchain, directory, variant, message_count=options.messages)
        for name, scenario in SCENARIOS.items():
            if options.scenario not in (None, name):
                continue
            if name in _IN_ONE_VARIANT and variant is not VARIANTS[0]:
                continue
            with suppress(SectionFailedError):  # recorded in the table; the next one is independent
                scenario(bench)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m interop", description="Check Eruca's store against Apache RocketMQ itself."
    )
    parser.add_argument("--messages", type=int, default=2000, help="number of flights to send")
    parser.add_argument("--only", choices=[variant.name for variant in VARIANTS])
    parser.add_argument("--scenario", choices=list(SCENARIOS))
    parser.add_argument("--keep", type=Path, help="directory in which to keep stores and logs")
    options = parser.parse_args()
    if options.messages < MESSAGES_MIN:
        parser.error(f"--messages: expected {MESSAGES_MIN} or more, found {options.messages}")
    return options


if __name__ == "__main__":
    sys.exit(main())
