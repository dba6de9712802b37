"""Inbox: a message's effects in the consumer's own database, exactly once.

Delivery is at least once. A message is redelivered if an acknowledgement was lost, or if a member
died. An inbox is a table in the program's own database. The transaction that does the work also
inserts the message into the inbox. A redelivered message finds its row, is skipped, and so
acknowledged::

    inbox = Inbox("billing")

    @consumer.on("orders")
    @inbox.once(pool.connection)  # opens a transaction, commits it, rolls it back if this raises
    def bill(message, connection):
        connection.execute("INSERT INTO invoices ...")

or, in an existing transaction::

    with engine.begin() as connection:
        if inbox.accept(connection, message):
            connection.execute(...)

The row's key is the consumer group, the topic to which the message was first sent, and the
message's unique id. A message without a unique id is identified by the offset id under which it was
first stored. This has the following consequences:

* A redelivery, a retry, and a redriven dead letter are the same message. It runs until one run has
  been committed, and is skipped after that.
* A message that a producer sends again with the same unique id is the same message. A message with
  a new id is a new message, even if its content is the same.
* If a group's offsets are reset, the group receives old messages and skips those that are done. To
  run one of them again, call ``forget`` first. To run all of them again, use another group.
* If two members have the same message at once, only one runs. The second one waits for the first
  one's transaction. Then it skips the message, or runs if the first one was rolled back. Above READ
  COMMITTED, PostgreSQL may refuse the second transaction instead. Then it raises, and skips the
  message when it is retried.
* Broadcasting members each handle every message. If they share a database, each member needs an
  inbox with its own group name.

Only effects in the transaction are exactly-once. A mail that the handler sends is not undone.

Rows are kept for ``keep``, by default a week. It must be longer than the time in which a message
can be redelivered. Brokers keep messages for three days by default. Each call of ``accept`` deletes
a few of the older rows, so no separate clean-up is needed.

Connections are those of psycopg, psycopg2, sqlite3 and SQLAlchemy (connections and sessions), for
PostgreSQL and SQLite. The package imports none of these libraries. ``AsyncInbox`` uses the async
connections of psycopg and SQLAlchemy.
"""

from __future__ import annotations

from eruca.inbox.asynchronous import AsyncInbox as AsyncInbox
from eruca.inbox.synchronous import Inbox as Inbox

__all__ = ["AsyncInbox", "Inbox"]
