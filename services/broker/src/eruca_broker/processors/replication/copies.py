"""The copies of a message: how many a send may count on, and how many a receipt may name."""

from __future__ import annotations

from eruca.contract.errors import ValidationError
from eruca_broker.processors.replication.door import not_enough
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.store.message_store import MessageStore


class GroupCopies:
    """Counts copies: one in a broker without replicas, which costs nothing."""

    def __init__(self, store: MessageStore, replication: Replication) -> None:
        self._store = store
        self._replication = replication

    def check(self, wanted: int) -> None:
        """Refuse a send that wants more copies than there are replicas in sync.

        Raises:
            ValidationError: This broker has no replicas at all; nothing is appended.
            NotEnoughReplicasError: Not all that it needs are in sync; nothing is appended.
        """
        if wanted > 1 and self._replication.member is None:
            raise ValidationError.at(
                "/query/copies",
                f"expected 1, for this broker has no replicas; found {wanted}",
                fix="omit copies, or give the broker replicas: ERUCA_BROKER_CONTROLLER_URLS",
            )
        feed = self._replication.feed
        count = 1 if feed is None else len(feed.copies.known)
        if wanted > count:
            raise not_enough(count, wanted, "copies")

    def held_before(self, log_offset: int) -> int:
        """Return the number of replicas that hold everything before *log_offset*."""
        feed = self._replication.feed
        if feed is None:
            return 1
        return feed.copies.count_at(log_offset, durable_end=self._store.durable_offset)
