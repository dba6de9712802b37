"""Inbox: a message's effects in the consumer's own database, exactly once.

Delivery is at least once: a message comes again when the answer to it was lost, a member died, or
the broker could not know. An inbox is a table beside the program's own. Within the transaction that
does the work it notes that the message is done; what comes a second time meets its row, is skipped,
and so acknowledged::

    inbox = Inbox("billing")

    @consumer.on("orders")
    @inbox.once(pool.connection)  # opens a transaction, commits it, rolls it back if this raises
    def bill(message, connection):
        connection.execute("INSERT INTO invoices ...")

or, in a transaction that is there already::

    with engine.begin() as connection:
        if inbox.accept(connection, message):
            connection.execute(...)

A message is known by its consumer group, the topic it was first sent to, and its unique id; where
it has none, by the offset id it was first stored under. So:

* a redelivery, a retry, and a dead letter that was redriven are the same message. They run if no
  run has been committed, and are skipped if one has;
* what a producer sends again with the same unique id is the same message; what it sends as a new
  message is a new one, whatever it says;
* a group whose offsets are reset goes over old messages and skips those that are done. To run one
  again, ``forget`` it first; to run everything again, use another group;
* two members that have the same message at once do not both run: the second waits for the first
  one's transaction, then skips, or runs if that was rolled back. Above READ COMMITTED PostgreSQL
  may refuse the second instead; it raises, and skips when it is retried;
* members that broadcast each handle every message: where they share a database, each needs an
  inbox with a group name of its own.

Only what the transaction holds is done once: a mail that the handler sends is not taken back.

Rows are kept for ``keep``, a week by default. It must be longer than a message can come again:
brokers keep messages for three days unless they are set otherwise. Older rows are deleted by those
who accept messages, a few at a time, so there is nothing else to run.

Connections are those of psycopg, psycopg2, sqlite3 and SQLAlchemy (connections and sessions), for
PostgreSQL and SQLite; none of them is imported. ``AsyncInbox`` takes those of psycopg and
SQLAlchemy that are awaited.
"""

from __future__ import annotations

from eruca.inbox.asynchronous import AsyncInbox as AsyncInbox
from eruca.inbox.synchronous import Inbox as Inbox

__all__ = ["AsyncInbox", "Inbox"]
