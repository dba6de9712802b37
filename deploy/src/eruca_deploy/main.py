"""The script ``eruca-local``: the local cluster, and Ctrl-C while Python still imports it."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the cluster and end the process."""
    try:
        from eruca_deploy.local import main

        sys.exit(main())
    except KeyboardInterrupt:  # importing takes a while; from then on the cluster sees to it
        sys.exit(0)  # as a moment later
