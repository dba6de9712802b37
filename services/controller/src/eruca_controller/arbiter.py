"""The arbiter: read a group's row, wait for its change, and change it under a condition.

It keeps no state of its own, so any number of controllers over one store agree.

A request that gets ArbiterUnavailableError may have been done. The client repeats it unchanged: if
its change is the one that made the current version, it has succeeded (:mod:`.core.rows`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Final, TypeVar

import structlog

from eruca.contract.broker_groups import BrokerGroupPut, BrokerGroupView, ChangeKind
from eruca.contract.errors import (
    ArbiterUnavailableError,
    BrokerGroupNotFoundError,
    OverloadedError,
    PreconditionFailedError,
)
from eruca_chassis.admission.held import HeldPlaces, Release
from eruca_chassis.asgi import Receive
from eruca_chassis.clock import Clock
from eruca_controller.core.conditions import Condition
from eruca_controller.core.rows import (
    GroupRow,
    content_of,
    content_of_removal,
    put_row,
    removed_row,
)
from eruca_controller.store.seam import GroupStore
from eruca_controller.watching import GroupWatch

_log = structlog.get_logger()
_T = TypeVar("_T")
_FIX_CREATE: Final = "create the group with If-None-Match: *"


@dataclass(slots=True)
class ArbiterCounts:
    """Counts of this process, since its start."""

    changes: dict[ChangeKind, int] = field(
        default_factory=lambda: {"created": 0, "changed": 0, "removed": 0}
    )
    refused: int = 0  # changes of another version than the current one
    repeated: int = 0  # changes that had been made before
    store_calls: int = 0
    store_failures: int = 0
    store_seconds: float = 0.0


class Arbiter:
    """Answers requests for groups.

    Args:
        store: Holds the rows.
        watch: Wakes held requests.
        held: Limits them.
        clock: The controller's clock.
        groups_max: Names that may have a row.
    """

    def __init__(
        self,
        store: GroupStore,
        watch: GroupWatch,
        held: HeldPlaces,
        clock: Clock,
        *,
        groups_max: int,
    ) -> None:
        self.counts = ArbiterCounts()
        self.held = held
        self.watch = watch
        self.started_at = datetime.now(UTC)
        self._store = store
        self._clock = clock
        self._groups_max = groups_max

    async def get(
        self,
        broker_name: str,
        known: frozenset[str] | None,
        wait_seconds: float,
        receive: Receive,
    ) -> BrokerGroupView:
        """Return the current row; wait while it has a known version, up to *wait_seconds*.

        Args:
            broker_name: The group's name.
            known: Versions that the client knows; None: any. If there are none, the call waits
                for a group that does not exist yet.
            wait_seconds: 0: return at once.
            receive: Tells when the client leaves.

        Raises:
            BrokerGroupNotFoundError: There is no such group.
            OverloadedError: Too many requests are held.
            ArbiterUnavailableError: The store is out of reach.
        """
        row = await self._call(self._store.read(broker_name))
        if wait_seconds > 0 and not _is_news(row, known):
            row = await self._changed(broker_name, row, known, wait_seconds, receive)
        if row is None or not row.is_live:
            raise BrokerGroupNotFoundError(
                f"broker group {broker_name!r} not found", fix=_FIX_CREATE
            )
        return row.group

    async def _changed(
        self,
        broker_name: str,
        row: GroupRow | None,
        known: frozenset[str] | None,
        wait_seconds: float,
        receive: Receive,
    ) -> GroupRow | None:
        """Return the row once it is news to the client, or when the time is over."""
        ends_at = self._clock.monotonic() + wait_seconds
        with self.held.place() as place:
            while not _is_news(row, known):
                self.watch.add(broker_name, place, None if row is None else row.version)
                try:
                    released = await place.wait(ends_at - self._clock.monotonic(), receive)
                finally:
                    self.watch.remove(broker_name, place)
                row = await self._call(self._store.read(broker_name))
                if released is not Release.NEWS:
                    break
        return row

    async def put(
        self, broker_name: str, condition: Condition, group: BrokerGroupPut
    ) -> tuple[BrokerGroupView, bool]:
        """Store *group* under *condition*; return the current row, and whether it was created.

        Raises:
            PreconditionFailedError: The current version does not meet the condition.
            StaleEpochError: The epoch would decrease.
            ConflictError: The epoch would have another master.
            OverloadedError: Too many names have a row.
            ArbiterUnavailableError: The store is out of reach; the row may have been stored.
        """
        kind: ChangeKind = "created" if condition.creates else "changed"
        before = await self._call(self._store.read(broker_name))
        if self._is_done(before, condition, kind, content_of(group)):
            assert before is not None
            return before.group, condition.creates
        self._check(broker_name, condition, before)
        if before is None:
            await self._check_room()
        row = put_row(broker_name, before, group, self._now())
        await self._swap(before, row, condition, content_of(group))
        return row.group, condition.creates

    async def remove(
        self, broker_name: str, condition: Condition, by: str | None, reason: str | None
    ) -> None:
        """Remove a group under *condition*; its history stays.

        Raises:
            BrokerGroupNotFoundError: There is no such group.
            PreconditionFailedError: The current version does not meet the condition.
            ArbiterUnavailableError: The store is out of reach; the group may have been removed.
        """
        before = await self._call(self._store.read(broker_name))
        if before is None or not before.is_live:
            raise BrokerGroupNotFoundError(
                f"broker group {broker_name!r} not found", fix="it has been removed already"
            )
        self._check(broker_name, condition, before)
        row = removed_row(before, by, reason, self._now())
        await self._swap(before, row, condition, content_of_removal(by, reason))

    async def groups(self, *, after: str | None, count_max: int) -> list[BrokerGroupView]:
        """Return the groups that sort after a name; raise ArbiterUnavailableError."""
        rows = await self._call(self._store.live(after=after, count_max=count_max))
        return [row.group for row in rows]

    async def history(
        self, broker_name: str, *, before: int | None, count_max: int
    ) -> list[GroupRow]:
        """Return a group's versions before a number, the newest first; removed ones as well.

        Raises:
            BrokerGroupNotFoundError: The name has never had a row.
            ArbiterUnavailableError: The store is out of reach.
        """
        rows = await self._call(
            self._store.history(broker_name, before=before, count_max=count_max)
        )
        if not rows and before is None:
            raise BrokerGroupNotFoundError(
                f"broker group {broker_name!r} has never existed", fix=_FIX_CREATE
            )
        return rows

    async def _swap(
        self, before: GroupRow | None, row: GroupRow, condition: Condition, content: str
    ) -> None:
        expected = None if before is None else before.version
        if await self._call(self._store.swap(expected, row)):
            self.counts.changes[row.kind] += 1
            self.watch.wake()
            _log.info(
                "broker group changed",
                broker=row.broker_name,
                kind=row.kind,
                version=row.version,
                epoch=row.group.epoch,
                master=row.group.master.replica_id,
                by=row.by,
                reason=row.reason,
            )
            return
        current = await self._call(self._store.read(row.broker_name))
        if not self._is_done(current, condition, row.kind, content):
            self._check(row.broker_name, condition, current, is_beaten=True)

    def _is_done(
        self, current: GroupRow | None, condition: Condition, kind: ChangeKind, content: str
    ) -> bool:
        """Return whether the current version is the result of this very request, repeated."""
        is_done = (
            current is not None
            and current.is_result_of(kind, content)
            and (condition.creates or current.previous in (condition.versions or ()))
        )
        self.counts.repeated += is_done
        return is_done

    def _check(
        self,
        broker_name: str,
        condition: Condition,
        current: GroupRow | None,
        *,
        is_beaten: bool = False,
    ) -> None:
        version = current.version if current is not None and current.is_live else None
        if condition.allows(version) and not is_beaten:
            return
        self.counts.refused += 1
        if version is None:
            raise PreconditionFailedError(
                f"broker group {broker_name!r} does not exist", fix=_FIX_CREATE
            )
        raise PreconditionFailedError(
            f"broker group {broker_name!r} has version {version}",
            fix=f'read it again, decide again, and send If-Match: "{version}"',
        )

    async def _check_room(self) -> None:
        if await self._call(self._store.count()) >= self._groups_max:
            raise OverloadedError(
                f"groups_max, {self._groups_max}, is reached: no more names can have a row",
                fix="raise ERUCA_CONTROLLER_GROUPS_MAX",
                retry_after_seconds=60,
            )

    async def _call(self, work: Awaitable[_T]) -> _T:
        self.counts.store_calls += 1
        begun = perf_counter()
        try:
            return await work
        except ArbiterUnavailableError:
            self.counts.store_failures += 1
            raise
        finally:
            self.counts.store_seconds += perf_counter() - begun

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)


def _is_news(row: GroupRow | None, known: frozenset[str] | None) -> bool:
    """Return whether a reader who knows these versions must be answered at once."""
    if row is None or not row.is_live:
        return known is None or bool(known)  # it knew the group, which is gone
    return known is not None and row.version not in known
