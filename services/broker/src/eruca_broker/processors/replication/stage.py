"""The stage: the broker around the roles of a replica, as its supervisor uses it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from eruca_broker.core.replication.broker_group import Change
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.store.message_store import MessageStore


class Stage(Protocol):
    """The broker around its role."""

    async def open_store(self, cut_to: int | None) -> MessageStore:
        """Open the store as a replica's; first truncate its log at *cut_to*, if given."""
        ...

    def working(
        self, store: MessageStore, replication: Replication, *, is_master: bool
    ) -> AbstractAsyncContextManager[None]:
        """Answer requests by parts for the role, and run its loops, for the block."""
        ...

    def remember_row(self, known: Change) -> None:
        """Store durably that this row of the group is known; raises OSError."""
        ...

    def place_changed(self) -> None:
        """Inform the name servers of the broker's new place in its group."""
        ...
