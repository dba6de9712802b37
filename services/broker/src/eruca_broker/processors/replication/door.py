"""The door of a broker with replicas: which operations it answers in its present role.

:data:`OPERATIONS` names each operation of the broker's document; a house test keeps it complete. An
operation that is new is the master's until somebody has decided otherwise. The door passes requests
by the hundred thousand each second, so it decides by attributes that the supervisor sets.

Rules, with the numbers of the replication design:

7. A standby shows only what is confirmed, and says how far that reaches. What it does not have may
   be confirmed all the same, and not copied yet, or may be deleted or damaged here alone. So it
   never says that something does not exist: it redirects to the master.
10. A master without its lease answers reads alone, and marks them as perhaps stale. It sends no
    reader past messages that it lacks.
12. A replica that is not the master never does a master's work: 307 to the master, or 503.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Final

from eruca.contract.errors import (
    ErucaError,
    NotEnoughReplicasError,
    NotFoundError,
    NotMasterError,
    NotMasterForSureError,
    NotReadyError,
    UnavailableError,
)
from eruca.contract.wire import BEHIND_SECONDS_HEADER, CONFIRMED_HEADER, STALE_HEADER
from eruca_broker.core.replication.roles import Role, has_lease
from eruca_chassis.asgi import Header

RETRY_SECONDS: Final = 1.0

_STALE: Final = ((STALE_HEADER.encode(), b"true"),)


class Demand(Enum):
    """The state of a broker that an operation demands."""

    NOTHING = "nothing"  # it is about this very process
    CONFIRMED = "confirmed records"  # it only reads what is visible
    MASTER = "the master"
    COPIES = "the master, and enough replicas in sync"


OPERATIONS: Final[Mapping[str, Demand]] = {
    # About this process.
    "getStatus": Demand.NOTHING,
    "pullRun": Demand.NOTHING,
    "proveLineage": Demand.NOTHING,
    "getReplicationStatus": Demand.NOTHING,
    # Reads of the log and its projections.
    "getTopic": Demand.CONFIRMED,
    "listTopics": Demand.CONFIRMED,
    "getQueues": Demand.CONFIRMED,
    "getOffsetByTime": Demand.CONFIRMED,
    "pullMessages": Demand.CONFIRMED,
    "pullManyQueues": Demand.CONFIRMED,
    "findMessages": Demand.CONFIRMED,
    "getGroupOffsets": Demand.CONFIRMED,
    "listGroupLags": Demand.CONFIRMED,
    "getGroupAsOf": Demand.CONFIRMED,
    "readLog": Demand.CONFIRMED,
    "getLogRecord": Demand.CONFIRMED,
    "listDeadLetters": Demand.CONFIRMED,
    "getDeadLetter": Demand.CONFIRMED,
    "listScheduled": Demand.CONFIRMED,
    "listTransactions": Demand.CONFIRMED,
    "getTransaction": Demand.CONFIRMED,
    "getTransactionAsOf": Demand.CONFIRMED,
    # New messages.
    "sendMessages": Demand.COPIES,
    "sendRecords": Demand.COPIES,
    "beginTransaction": Demand.COPIES,
    "beginTransactions": Demand.COPIES,
    # All other changes.
    "explainAccess": Demand.NOTHING,
    "getAccess": Demand.NOTHING,
    "reportAudit": Demand.MASTER,
    "switchMaster": Demand.MASTER,
    "putTopic": Demand.MASTER,
    "deleteTopic": Demand.MASTER,
    "putGroup": Demand.MASTER,
    "deleteGroup": Demand.MASTER,
    "heartbeat": Demand.MASTER,
    "leaveGroup": Demand.MASTER,
    "lockQueues": Demand.MASTER,
    "releaseQueues": Demand.MASTER,
    "commitOffsets": Demand.MASTER,
    "resetOffsets": Demand.MASTER,
    "sendBack": Demand.MASTER,
    "redriveDeadLetters": Demand.MASTER,
    "receiveDeliveries": Demand.MASTER,
    "ackDeliveries": Demand.MASTER,
    "nackDeliveries": Demand.MASTER,
    "extendDeliveries": Demand.MASTER,
    "recallScheduled": Demand.MASTER,
    "commitTransaction": Demand.MASTER,
    "rollBackTransaction": Demand.MASTER,
    "decideTransactions": Demand.MASTER,
    "checkTransaction": Demand.MASTER,
    "expireTransaction": Demand.MASTER,
    # Reads of what only the master has in memory: sessions.
    "getGroup": Demand.MASTER,
    "listGroups": Demand.MASTER,
    "listMembers": Demand.MASTER,
}


class RoleDoor:
    """The door; the supervisor sets its attributes.

    Attributes:
        role: The broker's role.
        is_closed: Whether the store is closed at present, so that nothing can be answered.
        is_leaving: Whether the master is handing over, and accepts nothing new.
        shows_confirmed: Whether all that this replica shows is known to be confirmed, and reaches
            as far as what was confirmed when it began to follow.
        master_urls: Of the known master, if that is another replica; empty: it is unknown.
        master_epoch: Its term; 0: unknown.
        lease_until: Returns the boottime until which no other replica can be master.
        in_sync_count: Returns the number of members without which nothing is confirmed.
        min_in_sync: The group's least number of these for sends.
        confirmed: Returns the log offset before which everything is shown.
        behind_seconds: Returns the time since this replica had everything; None: unknown.
    """

    def __init__(self, boottime: Callable[[], float]) -> None:
        self.role = Role.STANDBY
        self.is_closed = True
        self.is_leaving = False
        self.shows_confirmed = False
        self.master_urls: Mapping[str, str] = {}
        self.master_epoch = 0
        self.lease_until: Callable[[], float] = lambda: -inf
        self.in_sync_count: Callable[[], int] = lambda: 0
        self.min_in_sync = 1
        self.confirmed: Callable[[], int] = lambda: 0
        self.behind_seconds: Callable[[], float | None] = lambda: None
        self._boottime = boottime

    def refusal(self, operation: str) -> ErucaError | None:
        """Return why *operation* is refused now; None if it is answered."""
        if self.is_closed:
            return NotReadyError(
                "the replica truncates its log's unconfirmed end", retry_after_seconds=RETRY_SECONDS
            )
        demand = OPERATIONS.get(operation, Demand.MASTER)
        if demand is Demand.NOTHING:
            return None
        if self.role is not Role.MASTER:
            is_shown = self.role is Role.STANDBY and self.shows_confirmed
            return None if demand is Demand.CONFIRMED and is_shown else self.not_master()
        if demand is Demand.CONFIRMED:
            return None
        if (uncertainty := self._uncertainty()) is not None:
            return uncertainty
        if demand is Demand.COPIES and (count := self.in_sync_count()) < self.min_in_sync:
            return not_enough(count, self.min_in_sync, "min_in_sync")
        return None

    def failure(self, operation: str, error: ErucaError) -> ErucaError:
        """Return *error*; instead of "not found", a replica that is not the master redirects."""
        if OPERATIONS.get(operation) is not Demand.CONFIRMED or not isinstance(
            error, NotFoundError
        ):
            return error
        return self.doubt() or error

    def doubt(self) -> ErucaError | None:
        """Return why this replica cannot say that something does not exist; None: it can."""
        return None if self.role is Role.MASTER else self.not_master()

    def doubt_of_reading(self) -> UnavailableError | None:
        """Return why readers must not pass messages that this replica lacks; None: none has them.

        The next master may have them: the lack is not in the log.
        """
        if self.role is not Role.MASTER:
            return self.not_master()
        return self._uncertainty()

    def headers(self, operation: str) -> Sequence[Header]:
        """Return headers that say how far, or how certain, an answer is."""
        if OPERATIONS.get(operation) is not Demand.CONFIRMED or self.is_closed:
            return ()
        if self.role is Role.MASTER:
            # While it hands over, the arbiter may have named its successor before it knows.
            return () if self.has_lease and not self.is_leaving else _STALE
        headers = [(CONFIRMED_HEADER.encode(), b"%d" % self.confirmed())]
        if (behind := self.behind_seconds()) is not None:
            headers.append((BEHIND_SECONDS_HEADER.encode(), b"%.3f" % behind))
        return headers

    @property
    def has_lease(self) -> bool:
        """True if no other replica can be master now."""
        return has_lease(self.lease_until(), self._boottime())

    def _uncertainty(self) -> UnavailableError | None:
        """Return why another replica may be the master, of one that was; None: none can be."""
        if self.is_leaving:
            return _not_for_sure("this master is handing over to another replica")
        if not self.has_lease:
            return _not_for_sure(
                "this master has not heard from all replicas in sync for the length of its lease, "
                "so another one may be the master"
            )
        return None

    def not_master(self) -> UnavailableError:
        """Return the refusal of a replica that is not the master."""
        if not self.master_urls:
            return _not_for_sure("the broker group has no master now, or it is not known here")
        return NotMasterError(
            "this replica is not the master of its broker group",
            epoch=self.master_epoch or None,
            master_urls=self.master_urls,
        )


def not_enough(count: int, wanted: int, of: str) -> NotEnoughReplicasError:
    """Return the refusal of a send that wants more copies than there are replicas in sync."""
    return NotEnoughReplicasError(
        f"{of} is {wanted}, but {count} {'replica is' if count == 1 else 'replicas are'} in sync, "
        "this one included; nothing is stored",
        retry_after_seconds=RETRY_SECONDS,
    )


def _not_for_sure(reason: str) -> NotMasterForSureError:
    return NotMasterForSureError(reason, retry_after_seconds=RETRY_SECONDS)
