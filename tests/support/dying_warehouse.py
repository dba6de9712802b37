"""``python -m support.dying_warehouse STEP NAMESRV DATABASE``: the example's warehouse, cut short.

Each step kills the process as ``kill -9`` would. Where it is not reached, the exit code is 0.

``database:before``     a parcel is about to be committed in the database; ``database:after``
``sent:ack``            the broker has answered the acknowledgement, unread
"""

from __future__ import annotations

import sys

import eruca
from examples.orders.warehouse import Warehouse
from support.dying_shop import DyingTransport, die_in_database

WAIT_SECONDS = 5


def main() -> None:
    step, namesrv_url, database_url = sys.argv[1:]
    kind, _, which = step.partition(":")
    transport = DyingTransport(f"deliveries:{which}") if kind == "sent" else None
    with eruca.Client(namesrv_url, hot_transport=transport) as client:
        warehouse = Warehouse(client, database_url, invisible_seconds=1)
        if kind == "database":
            die_in_database(which)
        warehouse.pack(wait=WAIT_SECONDS)


if __name__ == "__main__":
    main()
