"""The script ``eruca-local``: the local cluster, and Ctrl-C while Python still imports it."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the cluster; end the process."""
    try:
        from eruca_deploy.local import main

        sys.exit(main())
    except KeyboardInterrupt:  # during the imports; later the cluster handles the signal
        sys.exit(0)  # the same exit code as later
