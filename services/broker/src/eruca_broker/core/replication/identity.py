"""The identity of a store: which replica it is, and whether it still has what it acknowledged.

A broker group knows a store by its replica id and a random *uid* (rule 1). The uid stands for one
promise: the store has kept all that it ever acknowledged. A start that cannot be certain of it
takes another uid, and is another member then (rule 8). So no compare-and-set is needed to remove a
store that may lack records: the in-sync set does not name it.

======================================  ======  ==============================================
The start finds                         uid     Reason
======================================  ======  ==============================================
no identity, or an unreadable one       new     a new store, or a wiped disk: it is nobody
an empty log                            new     the same
the last process closed the store       kept    everything is durable
it died, under the same kernel          kept    the kernel still has everything written
it died under another one, sync mode    kept    what it acknowledged was flushed before
it died under another one, async mode   new     the last seconds may be gone
durable records were given up           new     they are gone
a damaged record amid unflushed ones    new     those behind it are gone
======================================  ======  ==============================================

The identity also has the place of the latest row that the store's processes have known. By that a
replica recognises an arbiter that was restored from a copy, after a restart, too (rule 13).

Source: Kafka's KIP-903 and KIP-966; RocketMQ's design note ``persistent_unique_broker_id.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from eruca_broker.core.replication.broker_group import NO_CHANGE, Change, Member

FORMER_UIDS_MAX: Final = 16  # of starts that followed each other before the group learned of one


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a store of a broker group."""

    replica_id: int  # ≥ 1
    uid: str
    former_uids: tuple[str, ...] = ()  # those under which it may have lost records, latest first
    known: Change = NO_CHANGE  # the latest row of its group that any of its processes has known

    def __post_init__(self) -> None:
        assert self.replica_id >= 1
        assert self.uid
        assert self.uid not in self.former_uids, "rule 1: a uid is used once"

    @property
    def member(self) -> Member:
        """The store, as its group names it."""
        return Member(self.replica_id, self.uid)

    def was(self, member: Member) -> bool:
        """Tell whether *member* is what this store was before it may have lost records.

        The group may know an older uid than the last one, if several starts failed.
        """
        return member.replica_id == self.replica_id and member.uid in self.former_uids

    def doubted(self, uid: str) -> Identity:
        """Return the identity, with *uid*, of a store that may have lost records."""
        former = (self.uid, *self.former_uids)[:FORMER_UIDS_MAX]
        doubted = replace(self, uid=uid, former_uids=former)
        assert doubted.was(self.member), "rule 8: a store that may have lost records tells so"
        return doubted


class OpenMark(NamedTuple):
    """A process's note that it has the store open; it stays if the process dies."""

    boot_id: str | None  # of its kernel; None: unknown
    is_sync: bool  # whether it flushed what it acknowledged


def may_have_lost(mark: OpenMark | None, *, boot_id: str | None, is_sync: bool) -> bool:
    """Tell whether a store may have lost records that it acknowledged (rule 8).

    Args:
        mark: The note of the last process; None: it has closed the store.
        boot_id: The kernel's now; None: unknown.
        is_sync: Whether the store flushes what it acknowledges from now on. If it does not, the
            last process, of which nothing is known, may not have done so either.
    """
    if mark is None:
        return False
    is_same_kernel = mark.boot_id is not None and mark.boot_id == boot_id
    return not is_same_kernel and not (mark.is_sync and is_sync)
