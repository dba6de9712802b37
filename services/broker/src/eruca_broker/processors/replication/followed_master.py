"""The master that a standby follows: one follower at a time, in the epoch of the row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eruca.services.http import HttpTransport
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.following import FollowState
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.processors.replication.arbiter import KnownRow
from eruca_broker.processors.replication.follower import Follower
from eruca_broker.processors.replication.peers import DEFAULT_NETWORK
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock


class FollowedMaster:
    """Runs the follower of one store.

    Args:
        store: The replica's store.
        member: It, as the group names it.
        replication: Shows the follower in the status.
        transport: For its requests; the owner closes it.
        promise: Of this process, not to propose itself.
        clock: Compared with the master's.
        shown_offset: Log offset before which this process knows everything to be confirmed.
        on_end: Called when the follower has ended by itself: see :attr:`cut_to`.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        member: Member,
        replication: Replication,
        transport: HttpTransport,
        promise: Promise,
        clock: Clock,
        shown_offset: int,
        on_end: Callable[[], None],
    ) -> None:
        self.master: Member | None = None  # that was followed last
        self.confirmed = shown_offset  # as the masters have told that it has followed
        self._store = store
        self._member = member
        self._replication = replication
        self._transport = transport
        self._promise = promise
        self._clock = clock
        self._on_end = on_end
        self._task: asyncio.Task[int] | None = None
        self._of: tuple[int, str] | None = None  # epoch and URL

    @property
    def cut_to(self) -> int | None:
        """The log offset at which the log must be truncated; None: it need not be.

        Raises an error that the follower did not expect.
        """
        task = self._task
        return task.result() if task is not None and task.done() else None

    @property
    def is_proved(self) -> bool:
        """True if this replica's log is a beginning of the master's."""
        follower = self._replication.follower
        return follower is not None and follower.state is FollowState.FOLLOWING

    @property
    def is_heard(self) -> bool:
        """True if the master has answered the last request."""
        follower = self._replication.follower
        return follower is not None and follower.reason is None

    @property
    def skew_seconds(self) -> float:
        """This clock minus the master's; 0 if it is unknown."""
        follower = self._replication.follower
        return 0.0 if follower is None else follower.skew_seconds or 0.0

    @property
    def min_offset(self) -> int:
        """Log offset before which this replica may delete its log."""
        follower = self._replication.follower
        return 0 if follower is None else follower.min_offset

    def behind_seconds(self) -> float | None:
        """Return the time since this replica had everything; None: unknown."""
        follower = self._replication.follower
        return None if follower is None else follower.behind_seconds

    async def follow(self, row: KnownRow) -> None:
        """Follow the master of *row*, unless that is done already."""
        master = row.group.master
        url = row.row.urls_of(master).get(DEFAULT_NETWORK)
        if master.replica_id == self._member.replica_id:
            url = None  # what this store was before it may have lost records
        wanted = None if url is None else (row.group.epoch, url)
        if wanted == self._of:
            return
        await self.stop()
        if url is None:
            return
        self._of, self.master = wanted, master
        follower = self._replication.follower = Follower(
            self._store,
            member=self._member,
            epoch=row.group.epoch,
            url=url,
            transport=self._transport,
            promise=self._promise,
            clock=self._clock,
            shown_offset=self.confirmed,
            tier=self._replication.tier,
        )
        self._task = asyncio.create_task(follower.run(), name=f"follower of {master}")
        self._task.add_done_callback(lambda _: self._on_end())

    def note(self) -> None:
        """Note what the master has confirmed by now."""
        follower = self._replication.follower
        if follower is not None:
            self.confirmed = max(self.confirmed, follower.confirmed)

    async def stop(self) -> None:
        """Follow nobody; return once no request and no write is under way."""
        self.note()
        task, self._task, self._of = self._task, None, None
        self._replication.follower = None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        # The next master's records behind the end may be others, after an unclean election.
        self.confirmed = min(self.confirmed, self._store.log_max_offset)
