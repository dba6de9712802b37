"""Wrong rules: each function breaks one rule of the product in the process that calls it.

A suite that does not find them finds nothing. Each is the fault of a real system, which the product
excludes by a rule. None of it is in the product: a process of a run is started with the name of a
mutation, and patches itself before the service starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

SILENT_SECONDS: Final = 1.0


def confirm_without_silent_members() -> None:
    """Confirm without a member that has been silent for a second (RocketMQ's issue 6662)."""
    from eruca_broker.core.replication.in_sync import Copies
    from eruca_broker.processors.replication.feed import Feed

    feeds: list[Any] = []
    begin = Feed.__init__

    def begin_noted(self: Feed, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        feeds.append(self)
        begin(self, *arguments, **more)

    def advanced(self: Copies, durable_end: int) -> Copies:
        now = feeds[-1]._clock.boottime()
        heard = [
            member
            for member in self.waited_for - {self.master}
            if now - feeds[-1].silent_since(member) < SILENT_SECONDS
        ]
        least = min([durable_end, *(self._end_of(member) or 0 for member in heard)])
        return self if least <= self.confirmed else replace(self, confirmed=least)

    Feed.__init__ = begin_noted  # type: ignore[method-assign]
    Copies.advanced = advanced  # type: ignore[method-assign]


def let_an_isolated_master_go_on() -> None:
    """Let a master that reaches nobody remove the others for itself (RocketMQ's issue 7017)."""
    from eruca_broker.core.replication import roles

    confirm_without_silent_members()
    _patch_everywhere(roles.has_lease, lambda *_, **__: True)
    _patch_everywhere(roles.is_lease_lost, lambda *_, **__: False)


def confirm_alone() -> None:
    """Confirm what the master alone holds (RocketMQ's default of one in-sync replica)."""
    from eruca_broker.core.replication.in_sync import Copies

    def advanced(self: Copies, durable_end: int) -> Copies:
        return self if durable_end <= self.confirmed else replace(self, confirmed=durable_end)

    Copies.advanced = advanced  # type: ignore[method-assign]


def cut_at_confirmed() -> None:
    """Truncate a log at its start to the confirmed offset that it knew (Kafka's KIP-101).

    A replica learns of that offset late. So records go that it has acknowledged.
    """
    from eruca_broker.store.message_store import MessageStore
    from eruca_broker.store.role import StoreRole

    confirm, opened = StoreRole.confirm, MessageStore.open.__func__  # type: ignore[attr-defined]
    files: dict[int, int] = {}

    def path_of(directory: Path) -> Path:
        return directory.with_name(f"{directory.name}.confirmed")

    async def open_cut(
        cls: Any,  # noqa: ANN401 - the store's class
        directory: Path,
        settings: Any,  # noqa: ANN401 - the store's
        *arguments: Any,  # noqa: ANN401
        **more: Any,  # noqa: ANN401
    ) -> MessageStore:
        path = path_of(directory)
        known = int(path.read_text() or 0) if path.exists() else 0
        if known and settings.cut_to is None:
            settings = replace(settings, cut_to=known)
        store: MessageStore = await opened(cls, directory, settings, *arguments, **more)
        files[id(store.role)] = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        return store

    def confirm_noted(self: StoreRole, log_offset: int) -> None:
        confirm(self, log_offset)
        if id(self) in files:
            os.write(files[id(self)], b"")
            os.lseek(files[id(self)], 0, os.SEEK_SET)
            os.write(files[id(self)], b"%020d" % log_offset)

    MessageStore.open = classmethod(open_cut)  # type: ignore[assignment, method-assign]
    StoreRole.confirm = confirm_noted  # type: ignore[method-assign]


def count_impossible_acknowledgements() -> None:
    """Count each acknowledgement, beyond the master's end too (RocketMQ's issues 1155, 3015).

    And no log is truncated: such a replica keeps what the master never wrote.
    """
    from eruca_broker.core.replication.broker_group import Member
    from eruca_broker.core.replication.in_sync import Copies
    from eruca_broker.processors.replication import lineage
    from eruca_broker.store.reading.readable_log import ReadableLog

    check_lineage, is_boundary = lineage.check_lineage, ReadableLog.is_boundary

    def acknowledged(
        self: Copies, member: Member, *, epoch: int, log_offset: int, written_end: int
    ) -> Copies:
        del epoch, written_end
        return self._with(member, log_offset)

    def check_nothing(store: Any, replica: Any, *, epoch: int) -> Any:  # noqa: ANN401
        if replica.end <= store.log_max_offset:
            return check_lineage(store, replica, epoch=epoch)
        return lineage.CommonPart(replica.end, replica.end, is_proved=True)

    def is_any(self: ReadableLog, log_offset: int) -> bool:
        return log_offset > self._log.written_offset or is_boundary(self, log_offset)

    Copies.acknowledged = acknowledged  # type: ignore[method-assign]
    ReadableLog.is_boundary = is_any  # type: ignore[method-assign]
    _patch_everywhere(check_lineage, check_nothing)


def continue_queues_at_confirmed() -> None:
    """Give a new master's messages the offsets of unconfirmed ones (RocketMQ's issue 7689).

    Each replica refuses such a log, so the group stands still.
    """
    from eruca_broker.store.writing.writer import Writer

    lead = Writer.lead

    def lead_from_visible(self: Writer, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        for key in self._next_offsets:
            _, self._next_offsets[key] = self._queues.range(*key)
        return lead(self, *arguments, **more)

    Writer.lead = lead_from_visible  # type: ignore[method-assign]


def accept_wiped_disks() -> None:
    """Give each store of a replica id the same uid, a new one too (Kafka's KIP-903)."""
    from eruca_broker.store import identity

    replica = os.environ["ERUCA_BROKER_REPLICA_ID"]
    _patch_everywhere(identity._new_uid, lambda *_, **__: f"replica-{replica}")


def refuse_what_is_stored() -> None:
    """Call an append refused whose outcome is unknown (aborted reads of Redpanda, issue 3036)."""
    from eruca.contract.errors import NotMasterForSureError
    from eruca_broker.store.writing import writer

    writer.OutcomeUnknownError = NotMasterForSureError  # type: ignore[attr-defined, assignment]


def repair_nothing() -> None:
    """Leave damaged records as they are, though other replicas have them (NATS' issue 7549)."""
    from eruca_broker.processors.replication.repair import Repair

    async def at(self: Repair, log_offset: int) -> bool:
        del self, log_offset
        return False

    Repair.at = at  # type: ignore[method-assign]


def lead_readers_past_messages() -> None:
    """Skip a message wherever a reader goes on."""
    _begin_reading(lambda offset: offset + 1 if offset else 0)


def lead_readers_back() -> None:
    """Give the last message once more, wherever a reader goes on."""
    _begin_reading(lambda offset: max(offset - 1, 0))


def _begin_reading(at: Callable[[int], int]) -> None:
    from eruca_broker.store.pulling.queue_reader import QueueReader

    read = QueueReader.read

    def read_elsewhere(
        self: QueueReader,
        topic: str,
        queue_id: int,
        offset: int,
        **more: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return read(self, topic, queue_id, at(offset), **more)

    QueueReader.read = read_elsewhere  # type: ignore[method-assign]


def grant_locks_twice() -> None:
    """Lock a queue for any member, whether another one holds it or not."""
    from eruca_broker.processors.groups import queue_locks

    def shares(self: Any, group: Any, session: Any, queues: Any) -> Any:  # noqa: ANN401
        del self, group, session
        return queue_locks._Shares(free=list(queues))

    queue_locks.QueueLocks._shares = shares  # type: ignore[method-assign]


def rebuild_too_little() -> None:
    """Hide the last message of each queue if the queues had to be rebuilt."""
    from eruca_broker.store.message_store import MessageStore
    from eruca_broker.store.pulling.queue_reader import QueueReader

    opened, read = MessageStore.open.__func__, QueueReader.read  # type: ignore[attr-defined]
    is_rebuilt = False

    async def open_noted(
        cls: Any,  # noqa: ANN401
        directory: Path,
        *arguments: Any,  # noqa: ANN401
        **more: Any,  # noqa: ANN401
    ) -> MessageStore:
        nonlocal is_rebuilt
        is_rebuilt = (directory / "commitlog").exists() != (directory / "consumequeue").exists()
        store: MessageStore = await opened(cls, directory, *arguments, **more)
        return store

    def read_less(
        self: QueueReader,
        topic: str,
        queue_id: int,
        offset: int,
        **more: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        found = read(self, topic, queue_id, offset, **more)
        if is_rebuilt and found.count and found.next_offset == found.max_offset:
            if found.count == 1:
                return read(self, topic, queue_id, found.max_offset, **more)
            return read(self, topic, queue_id, offset, **more | {"count_max": found.count - 1})
        return found

    MessageStore.open = classmethod(open_noted)  # type: ignore[assignment, method-assign]
    QueueReader.read = read_less  # type: ignore[method-assign]


def _patch_everywhere(function: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Replace a function in each module that has imported it, or will."""
    import importlib
    import pkgutil
    import sys

    import eruca_broker

    for found in pkgutil.walk_packages(eruca_broker.__path__, "eruca_broker."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    name = function.__name__
    for module in list(sys.modules.values()):
        if getattr(module, name, None) is function:
            setattr(module, name, by)


class Mutation(NamedTuple):
    """A wrong rule, and the schedule under which it shows."""

    begin: Callable[[], None]
    schedule: str
    checkers: tuple[str, ...]  # one of them must find it


# A replica that still has what is missing elsewhere shows it at offsets that others have filled.
_MISSING: Final = ("lost", "unseen", "inconsistent-offset")

MUTATIONS: Final[dict[str, Mutation]] = {
    "confirms without silent members": Mutation(
        confirm_without_silent_members, "isolated master", _MISSING
    ),
    "isolated master goes on": Mutation(let_an_isolated_master_go_on, "isolated master", _MISSING),
    "confirms alone": Mutation(confirm_alone, "isolated master", _MISSING),
    "cuts at confirmed": Mutation(cut_at_confirmed, "group killed", _MISSING),
    "counts impossible acknowledgements": Mutation(
        count_impossible_acknowledgements, "longer log", ("inconsistent-offset", "caught-up")
    ),
    "continues queues at confirmed": Mutation(
        continue_queues_at_confirmed, "master killed", ("caught-up", "contiguous")
    ),
    "refuses what is stored": Mutation(
        refuse_what_is_stored, "acknowledgements lost", ("aborted-read",)
    ),
    "repairs nothing": Mutation(repair_nothing, "flipped bit", ("repaired", "equal-logs")),
    "leads readers past messages": Mutation(lead_readers_past_messages, "calm", ("poll-skip",)),
    "leads readers back": Mutation(lead_readers_back, "calm", ("nonmonotonic-poll",)),
    "grants locks twice": Mutation(grant_locks_twice, "calm", ("locks", "stale-tokens")),
    "rebuilds too little": Mutation(rebuild_too_little, "calm", ("rebuilt",)),
    "accepts wiped disks": Mutation(accept_wiped_disks, "wiped disk", _MISSING),
}


def apply(name: str) -> None:
    """Break a rule; do nothing if *name* is empty."""
    if name:
        MUTATIONS[name].begin()
