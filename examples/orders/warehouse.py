"""A warehouse: an order's message becomes a parcel in PostgreSQL, exactly one.

A message may come again: where this program dies between packing and acknowledging, or where the
acknowledgement is lost. So the parcel is packed in the transaction in which the inbox notes that
the message is done. The transaction ends before the message is acknowledged:

    the program dies before it is committed     there is no parcel; the message comes again
    it dies afterwards                          the message comes again, is known, and is skipped
"""

from __future__ import annotations

from typing import Final

import psycopg

import eruca
from eruca.inbox import Inbox
from examples.orders.shop import TOPIC

GROUP: Final = "order-warehouse"

# Nothing in this table would keep an order from being packed twice.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS parcels (
    parcel_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text NOT NULL
)
"""


class Warehouse:
    """Packs what the shop tells it of.

    Args:
        client: Of the cluster.
        database_url: Of the PostgreSQL server.
        invisible_seconds: How soon others get an order whose packer has died.
    """

    def __init__(
        self, client: eruca.Client, database_url: str, *, invisible_seconds: float = 30
    ) -> None:
        self._database_url = database_url
        self._inbox = Inbox(GROUP)
        self._consumer = client.simple_consumer(
            GROUP, TOPIC, start="earliest", invisible_seconds=invisible_seconds
        )

    def create_tables(self) -> None:
        """Create the tables that are missing."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute(_SCHEMA)
            self._inbox.create_table(connection)

    def pack(self, *, wait: float) -> list[str]:
        """Pack what comes until *wait* seconds bring nothing; return whose parcels were packed."""
        packed: list[str] = []
        while deliveries := self._consumer.receive(1, wait):
            [delivery] = deliveries
            order_id = delivery.message.json()["order_id"]
            # The inner one ends first: the parcel is committed, and then the message acknowledged.
            with (
                self._consumer.handling(delivery),
                psycopg.connect(self._database_url) as connection,
            ):
                if self._inbox.accept(connection, delivery.message):
                    connection.execute("INSERT INTO parcels (order_id) VALUES (%s)", (order_id,))
                    packed.append(order_id)
        return packed
