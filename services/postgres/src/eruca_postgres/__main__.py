"""``python -m eruca_postgres DIRECTORY``: an embedded server until a signal comes.

Prints its URL, to be used as ``DATABASE_URL`` by any number of services on this machine. A server
that dies is started again, at the same URL.
"""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from eruca_chassis.start import StartError
from eruca_postgres.embedded import EmbeddedServer

LOOK_SECONDS: Final = 1.0  # between two looks whether it lives


def main() -> int:
    """Serve, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m eruca_postgres", description="An embedded PostgreSQL until a signal comes."
    )
    parser.add_argument(
        "--version", action="version", version=f"eruca-postgres {version('eruca-postgres')}"
    )
    parser.add_argument("directory", type=Path, help="where its data is, or will be")
    options = parser.parse_args()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # taken below, never in mid-start
    try:
        with EmbeddedServer(options.directory.absolute()) as server:
            sys.stdout.write(f"PostgreSQL is ready: {server.url}\n")
            sys.stdout.flush()
            while signal.sigtimedwait(signals, LOOK_SECONDS) is None:
                if server.revive():
                    sys.stderr.write("PostgreSQL had died and was started again\n")
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
