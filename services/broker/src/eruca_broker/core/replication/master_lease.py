"""The lease: the time in which a master may be certain that no other replica is master.

Sends need no lease, for a replaced master can confirm nothing. Answers about the present do: locks,
deliveries, commits and heartbeats would be answered by two masters otherwise.

::

    master                                             replica
      answers fetch with number K, at s  ────────────►
                                          ◄────────────  next fetch quotes K, sent at f ≥ s
      lease until s + L                                  promises not to propose itself before f + G

Several fetches of a replica may be under way. Each answer that it quotes proves the same: it was
alive after that answer was sent. So the master remembers the times of the last few answers.

Both count their own clock only, which must run while the machine is suspended. As G is larger than
L by a quarter, the clocks may run at rates that differ by as much. Every other member of the
in-sync set must have quoted a number, for each of them could become master. The only member of a
set needs no lease.

A replica that has just started knows nothing of its promises, so it promises again.

Source: PacificA, section 2.2, lease and grace period.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Final

from eruca_broker.core.replication.broker_group import Member

LEASE_SECONDS: Final = 3.5
PROMISE_SECONDS: Final = 5.0
ANSWERS_MAX: Final = 8  # whose times are remembered: more than a replica has fetches under way
TURN_SECONDS: Final = PROMISE_SECONDS / 4  # between two replicas that would become master

assert PROMISE_SECONDS >= 1.25 * LEASE_SECONDS, "rule 10: a slow clock, two masters"


class MasterLease:
    """The master's side: which of its answers each replica is known to have seen."""

    def __init__(self, lease_seconds: float = LEASE_SECONDS) -> None:
        self._lease_seconds = lease_seconds
        self._sent: dict[Member, deque[tuple[int, float]]] = {}  # the last answers, and their times
        self._quoted_at: dict[Member, float] = {}  # when the last quoted answer was sent

    def answering(self, member: Member, now: float) -> int:
        """Note that a fetch is being answered; return the number for the answer.

        Args:
            member: The replica's store.
            now: Before the answer is sent, in seconds on the master's clock.
        """
        sent = self._sent.setdefault(member, deque(maxlen=ANSWERS_MAX))
        number, sent_at = sent[-1] if sent else (0, -inf)
        assert now >= sent_at, "the clock went backwards"
        sent.append((number + 1, now))
        return number + 1

    def quoted(self, member: Member, number: int) -> None:
        """Note that a replica has sent a fetch after it received answer *number*.

        A number that was not given to it in this term, or long ago, proves nothing.
        """
        for sent_number, sent_at in reversed(self._sent.get(member, ())):
            if sent_number == number:
                self._quoted_at[member] = max(sent_at, self._quoted_at.get(member, -inf))
                return

    def until(self, others: Iterable[Member]) -> float:
        """Return the time up to which no other replica can be master; infinity if there is none.

        Args:
            others: The members to wait for, without the master.
        """
        proofs = (self._quoted_at.get(member, -inf) for member in others)
        return min(proofs, default=inf) + self._lease_seconds


class Promise:
    """The replica's side: the time before which it does not propose itself as master."""

    def __init__(self, now: float, promise_seconds: float = PROMISE_SECONDS) -> None:
        self._promise_seconds = promise_seconds
        self._until = now + promise_seconds  # its last run may have promised that much

    @property
    def until(self) -> float:
        """The time before which the replica does not propose itself, on its own clock."""
        return self._until

    def fetching(self, now: float) -> None:
        """Renew the promise: a fetch is about to be sent."""
        self._until = max(self._until, now + self._promise_seconds)

    def new_master(self, now: float) -> None:
        """Give a new master as much time: the silence until now was its predecessor's."""
        self.fetching(now)

    def propose_at(self, rank: int) -> float:
        """Return the time from which the replica may propose itself.

        Args:
            rank: Its place among the members that could: 0 for the one with the longest log.
        """
        assert rank >= 0
        return self._until + rank * TURN_SECONDS
