"""``python -m examples.orders place 5`` places orders; ``answer`` only answers checks.

``pack`` packs one parcel for each order that has arrived. ``compare`` reads all messages and tells
whether they are the orders in the database. The cluster is found as by every client.
``DATABASE_URL`` names PostgreSQL; ``make up`` prints the URL of its own. You need the SDK and
``psycopg[binary]``. Kill the program whenever you like.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import suppress

import psycopg

import eruca
from examples.orders.shop import TOPIC, Shop
from examples.orders.warehouse import Warehouse


def main() -> int:
    """Run a command; return the exit code."""
    parser = argparse.ArgumentParser(prog="examples.orders", description=__doc__)
    parser.add_argument("command", choices=["place", "answer", "pack", "compare"])
    parser.add_argument("count", nargs="?", type=int, default=1, help="orders to place")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end in order, as after Ctrl-C
    database_url = os.environ.get("DATABASE_URL")
    if not database_url:
        parser.error("DATABASE_URL is not set; make up prints the URL of its PostgreSQL")
    try:
        return run(options.command, options.count, database_url)
    except psycopg.Error as error:
        sys.stderr.write(f"error: DATABASE_URL: {' '.join(str(error).split())}\n")  # on one line
    except eruca.ErucaError as error:
        sys.stderr.write(f"error: {error}\n")
    return 1


def run(command: str, count: int, database_url: str) -> int:
    """Run a command; return the exit code."""
    with eruca.Client() as client:
        shop = Shop(client, database_url)
        shop.create_tables()
        if command == "pack":
            return pack(client, database_url)
        if command == "compare":
            return compare(client, database_url)
        with shop:
            if command == "answer":
                with suppress(KeyboardInterrupt):
                    say("answering checks until Ctrl-C")
                    threading.Event().wait()
                return 0
            for number in range(count):
                say(shop.place_order(f"customer-{number}", 100 + number))
    return 0


def pack(client: eruca.Client, database_url: str) -> int:
    """Pack the orders that have arrived; return the exit code."""
    warehouse = Warehouse(client, database_url)
    warehouse.create_tables()
    # The first message creates the topic. A delivery interrupted by a signal is redelivered.
    with suppress(eruca.TopicNotFoundError, KeyboardInterrupt):
        for order_id in warehouse.pack(wait=1):
            say(order_id)
    return 0


def compare(client: eruca.Client, database_url: str) -> int:
    """Return 0 if the messages are exactly the orders, each once; else 1."""
    delivered: list[str] = []
    with (
        suppress(eruca.TopicNotFoundError),  # the first message creates the topic
        client.pull_consumer(topics=TOPIC, start="earliest") as consumer,
    ):
        while any(consumer.lag().values()):
            delivered += [message.json()["order_id"] for message in consumer.poll(wait_seconds=10)]
    with psycopg.connect(database_url) as connection:
        stored = {row[0] for row in connection.execute("SELECT order_id FROM orders")}
    say(f"{len(stored)} orders, {len(delivered)} messages")
    return 0 if sorted(delivered) == sorted(stored) else 1


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
