"""A shop: an order is a row in PostgreSQL and a message to the warehouse, both or neither.

No outbox table is written and none is polled. The half message is stored first; then one database
transaction stores the order, and that it was done for this message; then the message is committed.
Wherever the program dies, it is asked later, any process of it, and the database knows:

    ``order_messages`` has a row ``commit``     the order is there: commit the message
    it has no row                               the order is not there, and must never be: put a row
                                                ``rollback`` there, and roll the message back

The second row is what makes the answer final. A process that is merely slow, and comes to store its
order after all, meets it: the key is taken, so the order is not stored. PostgreSQL has one wait for
the other where both come at the same time. So no time-out has to be long enough.
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
    """Takes orders, and knows what became of them; as a context manager it answers checks.

    Args:
        client: Of the cluster.
        database_url: Of the PostgreSQL server.
    """

    def __init__(self, client: eruca.Client, database_url: str) -> None:
        self._database_url = database_url
        self._producer = client.transaction_producer(GROUP, check=self._check)

    def create_tables(self) -> None:
        """Create the tables that are missing."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute(_SCHEMA)

    def place_order(self, customer: str, amount: int) -> str:
        """Store an order and tell the warehouse; return the order's id."""
        order_id = str(uuid.uuid4())
        order = {"order_id": order_id, "customer": customer, "amount": amount}
        message = eruca.Message.json(TOPIC, order, keys=order_id)
        # The inner one ends first: the order is committed, and then its message.
        # If the database raises, the order may be there all the same: the answer to its COMMIT may
        # have been lost. So nothing is rolled back then. The check will look.
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
        """Say whether the order of a message was stored; if not, see to it that it never is."""
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
