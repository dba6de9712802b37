"""``python -m interop``: run every scenario, print a table of checks.

Exit code 0: both sides agree in everything. 1: they do not. 2: it cannot be run here.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from interop.checks import Checks
from interop.scenarios import Bench, eruca_writes, rocketmq_writes
from interop.toolchain import CannotRunError, prepare


def main() -> int:
    """Run the scenarios and return the exit code."""
    options = _options()
    try:
        toolchain = prepare()
    except CannotRunError as error:
        print(f"interoperation cannot be checked here: {error}", file=sys.stderr)
        return 2
    directory = options.keep or Path(tempfile.mkdtemp(prefix="eruca-interop-"))
    checks = Checks()
    try:
        for killed in (False, True):
            bench = Bench(checks, toolchain, directory, options.messages, killed=killed)
            rocketmq_writes(bench)
            eruca_writes(bench)
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    checks.summary()
    return 0 if checks.all_agree else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m interop", description=__doc__)
    parser.add_argument("--messages", type=int, default=3000, help="flights sent by each writer")
    parser.add_argument("--keep", type=Path, help="put stores and logs there and leave them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
