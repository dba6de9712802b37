"""A warehouse: an order's message becomes exactly one parcel in PostgreSQL.

A message may be delivered twice: if this program dies between packing and acknowledging, or if the
acknowledgement is lost. So the parcel is packed in the transaction in which the inbox records the
message. The transaction is committed before the message is acknowledged:

    the program dies before the commit     there is no parcel; the message is redelivered
    it dies afterwards                     the message is redelivered, recognized and skipped
"""

from __future__ import annotations

from typing import Final

import psycopg

import eruca
from eruca.inbox import Inbox
from examples.orders.shop import TOPIC

GROUP: Final = "order-warehouse"

# No constraint here prevents a second parcel: only the inbox does.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS parcels (
    parcel_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text NOT NULL
)
"""


class Warehouse:
    """Packs the shop's orders.

    Args:
        client: A client of the cluster.
        database_url: URL of the PostgreSQL server.
        invisible_seconds: Time until others get an order whose packer has died.
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
        """Create missing tables."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute(_SCHEMA)
            self._inbox.create_table(connection)

    def pack(self, *, wait: float) -> list[str]:
        """Pack orders until none arrives within *wait* seconds; return the ids of packed orders."""
        packed: list[str] = []
        while deliveries := self._consumer.receive(1, wait):
            [delivery] = deliveries
            order_id = delivery.message.json()["order_id"]
            # The inner block ends first: the parcel is committed, then the message acknowledged.
            with (
                self._consumer.handling(delivery),
                psycopg.connect(self._database_url) as connection,
            ):
                if self._inbox.accept(connection, delivery.message):
                    connection.execute("INSERT INTO parcels (order_id) VALUES (%s)", (order_id,))
                    packed.append(order_id)
        return packed
