"""Handing over: a master appoints its successor; a replica that stops leaves the in-sync set.

A master that hands over closes its door, waits for its successor to have everything, becomes a
replica, and only then names the successor. So no append is in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from eruca.contract.errors import ConflictError, NotMasterForSureError, StaleEpochError
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.roles import Outcome, Turn
from eruca_broker.processors.replication.arbiter import KnownRow, StaleVersionError, UnansweredError
from eruca_broker.processors.replication.door import RETRY_SECONDS, RoleDoor
from eruca_broker.processors.replication.followed_master import FollowedMaster
from eruca_broker.processors.replication.peers import DEFAULT_NETWORK, Peers
from eruca_broker.processors.replication.term import Term
from eruca_broker.processors.replication.watched_row import WatchedRow
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

HAND_OVER_SECONDS: Final = 2.0  # for the successor to have everything
SUCCESSOR_SECONDS: Final = 5.0  # for the successor to lead, before this process ends
SUCCESSOR_PAUSE_SECONDS: Final = 0.05

logger = structlog.get_logger(__name__)


class HandOver:
    """Hands over, or leaves, by the arbiter's row.

    Args:
        watched: The row.
        door: It refuses what is new.
        peers: The other replicas.
        clock: For time limits.
    """

    def __init__(self, watched: WatchedRow, door: RoleDoor, peers: Peers, clock: Clock) -> None:
        self._watched = watched
        self._door = door
        self._peers = peers
        self._clock = clock

    async def to(
        self,
        to: int | None,
        *,
        term: Term,
        store: MessageStore,
        is_leaving: bool,
        step_down: Callable[[Turn], None],
    ) -> KnownRow:
        """Let another replica become master; return the row that names it.

        Args:
            to: Its id; None: the one that has acknowledged most.
            term: Of the master.
            store: The master's.
            is_leaving: Whether this replica is stopping, and leaves the in-sync set at once.
            step_down: Ends the term.

        Raises:
            ConflictError: There is no such replica in sync, or another one became master.
            UnavailableError: The other one did not follow fast enough: this one remains the master.
        """
        successor = term.successor(to)
        self._door.is_leaving = term.is_handing_over = True
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await term.bring_level(successor)
        except BaseException as error:
            self._door.is_leaving = term.is_handing_over = False
            if isinstance(error, TimeoutError | UnansweredError):
                raise NotMasterForSureError(
                    f"replica {successor} did not have everything, or no controller answered, "
                    f"within {HAND_OVER_SECONDS:g} s; this one remains the master",
                    retry_after_seconds=RETRY_SECONDS,
                ) from error
            if isinstance(error, StaleEpochError):
                raise ConflictError("another replica became master meanwhile") from error
            raise
        # Everything is confirmed, so no append is in doubt. Nothing more is appended.
        store.role.follow()
        turn = Turn.SUPERSEDED
        try:
            if await term.appoint(successor, is_leaving=is_leaving) is Outcome.WON:
                turn = Turn.HANDED_OVER
        finally:
            step_down(turn)  # whatever happened, it appends no more in this term
        if turn is not Turn.HANDED_OVER:
            raise ConflictError("the broker group has changed meanwhile; ask again")
        row = self._watched.known
        assert row is not None
        return row

    async def led_by(self, row: KnownRow) -> None:
        """Wait until the master that *row* names leads, so that redirected requests succeed."""
        url = row.row.urls_of(row.group.master).get(DEFAULT_NETWORK)
        if url is None:
            return
        until = self._clock.monotonic() + SUCCESSOR_SECONDS
        while self._clock.monotonic() < until:
            status = await self._peers.status(url)
            if status is not None and status.role == "master":
                return
            await asyncio.sleep(SUCCESSOR_PAUSE_SECONDS)

    async def leave(self, member: Member, following: FollowedMaster) -> None:
        """Leave the in-sync set, so that the master need not wait for this replica's silence."""
        row = self._watched.known
        assert row is not None
        await following.stop()
        group = replace(row.group, in_sync=row.group.in_sync - {member})
        try:
            await self._watched.swap(
                row.version, replace(row.row, group=group), f"replica {member} stops"
            )
        except (StaleVersionError, UnansweredError) as error:
            logger.info("not removed from the in-sync set", reason=str(error))
