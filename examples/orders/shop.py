"""A shop: an order is a row in PostgreSQL and a message to the warehouse, committed together.

There is no outbox table and no polling. The half message is stored first. Then one database
transaction stores the order, and an entry for this message. Then the message is committed. If the
program dies anywhere in between, any process of the shop is asked later, and the database answers:

    ``order_messages`` has a row ``commit``     the order exists: commit the message
    it has no row                               the order does not exist and must never exist:
                                                insert a row ``rollback``, and roll back

The second row makes the answer final. A slow process that tries to store its order later finds the
key taken, so the order is not stored. If both come at the same time, PostgreSQL makes one wait for
the other. So no time-out has to be long enough.
"""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Final, Self

import psycopg

import eruca

GROUP: Final = "order-shop"
TOPIC: Final = "shop-orders"

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS orders (
    order_id text PRIMARY KEY,
    customer text NOT NULL,
    amount integer NOT NULL
);
CREATE TABLE IF NOT EXISTS order_messages (
    transaction_id text PRIMARY KEY,
    outcome text NOT NULL CHECK (outcome IN ('commit', 'rollback'))
);
"""
_SAY: Final = "INSERT INTO order_messages VALUES (%s, %s)"
_SAY_UNLESS_SAID: Final = f"{_SAY} ON CONFLICT DO NOTHING"
_SAID: Final = "SELECT outcome FROM order_messages WHERE transaction_id = %s"


class Shop:
    """Takes orders; as a context manager it also answers checks.

    Args:
        client: A client of the cluster.
        database_url: URL of the PostgreSQL server.
    """

    def __init__(self, client: eruca.Client, database_url: str) -> None:
        self._database_url = database_url
        self._producer = client.transaction_producer(GROUP, check=self._check)

    def create_tables(self) -> None:
        """Create missing tables."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute(_SCHEMA)

    def place_order(self, customer: str, amount: int) -> str:
        """Store an order and send it to the warehouse; return the order's id."""
        order_id = str(uuid.uuid4())
        order = {"order_id": order_id, "customer": customer, "amount": amount}
        message = eruca.Message.json(TOPIC, order, keys=order_id)
        # The inner block ends first: the order is committed, then its message.
        # If the database raises, the order may exist all the same, because the answer to its COMMIT
        # may be lost. So nothing is rolled back here. A check will find out.
        with (
            self._producer.transaction(message) as transaction,
            psycopg.connect(self._database_url) as connection,
        ):
            connection.execute(_SAY, (transaction.transaction_id, "commit"))
            connection.execute(
                "INSERT INTO orders VALUES (%s, %s, %s)", (order_id, customer, amount)
            )
        return order_id

    def _check(self, check: eruca.TransactionCheck) -> eruca.Verdict:
        """Return whether the order of a message was stored; if not, ensure that it never is."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute(_SAY_UNLESS_SAID, (check.transaction_id, "rollback"))
            row = connection.execute(_SAID, (check.transaction_id,)).fetchone()
        assert row is not None
        return "commit" if row[0] == "commit" else "rollback"

    def __enter__(self) -> Self:
        self._producer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.close()
