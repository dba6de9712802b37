"""``python -m eruca_postgres DIRECTORY``: run an embedded PostgreSQL server until a signal.

It prints its URL, which any number of services on this machine can use as ``DATABASE_URL``. A
server that dies is restarted at the same URL.
"""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from eruca_chassis.running.program import quick_imports

LOOK_SECONDS: Final = 1.0  # between two checks that the server is alive


def main() -> int:
    """Run the server; return the exit code."""
    with quick_imports():
        from eruca_chassis.start import StartError
        from eruca_postgres.embedded import EmbeddedServer
    parser = argparse.ArgumentParser(
        prog="python -m eruca_postgres", description="Run an embedded PostgreSQL until a signal."
    )
    parser.add_argument(
        "--version", action="version", version=f"eruca-postgres {version('eruca-postgres')}"
    )
    parser.add_argument("directory", type=Path, help="data directory; created if missing")
    options = parser.parse_args()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # received below, never during the start
    try:
        with EmbeddedServer(options.directory.absolute()) as server:
            sys.stdout.write(f"PostgreSQL is ready: {server.url}\n")
            sys.stdout.flush()
            while signal.sigtimedwait(signals, LOOK_SECONDS) is None:
                if server.revive():
                    sys.stderr.write("PostgreSQL had died and was restarted\n")
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
