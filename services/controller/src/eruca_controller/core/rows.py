"""The row of a broker group, version by version, and the rules of its changes.

::

                 created                 changed                   removed
    no row ────────────────► version 1 ─────────► version 2, 3 … ─────────► removed
                                ▲                                              │
                                └───────────────── created ────────────────────┘

Each change has a number, which only grows, also through a removal. A version is that number and a
hash of the change and of the version before it. Two things follow:

- The same change to the same version has the same version. So a request whose answer was lost can
  be repeated: the repeated change is recognized by its version, and not made again.
- A store that was restored from an older copy gives out old numbers again, but not old versions. So
  nobody mistakes a new row for the one that they have read.

Invariants, of which the first is the body's own (:mod:`eruca.contract.broker_groups`):

1. The master is in the in-sync set.
2. The epoch never decreases, and the master changes only with a new epoch.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from eruca.contract.broker_groups import (
    BrokerGroupChange,
    BrokerGroupPut,
    BrokerGroupView,
    ChangeKind,
    ReplicaName,
)
from eruca.contract.errors import ConflictError, StaleEpochError

HASH_SIZE: Final = 16  # hex digits of a version's hash: 64 bits


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One version of a group's row, with the change that made it.

    Attributes:
        broker_name: The group's name.
        number: Number of the change: 1, 2, 3 …
        version: Identifies this version for ever.
        previous: The version before; None for the first one.
        kind: The kind of the change.
        changed_at: By the controller's clock.
        by: The author; None: not named.
        reason: The author's reason.
        group: The row; for a removed one, the row that was removed.
    """

    broker_name: str
    number: int
    version: str
    previous: str | None
    kind: ChangeKind
    changed_at: datetime
    by: str | None
    reason: str | None
    group: BrokerGroupView

    def __post_init__(self) -> None:
        assert self.number >= 1
        assert (self.previous is None) == (self.number == 1)

    @property
    def is_live(self) -> bool:
        """True if the group exists in this version."""
        return self.kind != "removed"

    def is_result_of(self, kind: ChangeKind, content: str) -> bool:
        """Return whether this version is the result of exactly this change."""
        return self.version == _version(self.number, self.previous, kind, content)

    def change(self) -> BrokerGroupChange:
        """Return the change, for the history."""
        return BrokerGroupChange(
            kind=self.kind,
            version=self.version,
            changed_at=self.changed_at,
            epoch=self.group.epoch,
            master=self.group.master,
            in_sync=self.group.in_sync,
            min_in_sync=self.group.min_in_sync,
            unclean=self.group.unclean,
            by=self.by,
            reason=self.reason,
        )

    def to_text(self) -> str:
        """Return the row as stores keep it: JSON on one line."""
        return json.dumps(
            {
                "broker_name": self.broker_name,
                "number": self.number,
                "version": self.version,
                "previous": self.previous,
                "kind": self.kind,
                "changed_at": self.changed_at.isoformat(),
                "by": self.by,
                "reason": self.reason,
                "group": self.group.model_dump(mode="json"),
            }
        )

    @classmethod
    def from_text(cls, text: str | bytes) -> Self:
        """Return the row that :meth:`to_text` wrote; members of a later version are ignored."""
        kept: dict[str, Any] = json.loads(text)
        return cls(
            broker_name=kept["broker_name"],
            number=kept["number"],
            version=kept["version"],
            previous=kept["previous"],
            kind=kept["kind"],
            changed_at=datetime.fromisoformat(kept["changed_at"]),
            by=kept["by"],
            reason=kept["reason"],
            group=BrokerGroupView.model_validate_json(json.dumps(kept["group"])),
        )


def content_of(group: BrokerGroupPut) -> str:
    """Return the content of a change that puts *group*, for its version."""
    return group.model_dump_json()


def content_of_removal(by: str | None, reason: str | None) -> str:
    """Return the content of a removal, for its version."""
    return json.dumps([by, reason])


def put_row(
    broker_name: str, before: GroupRow | None, group: BrokerGroupPut, changed_at: datetime
) -> GroupRow:
    """Return the version that *group* makes.

    Args:
        broker_name: The group's name.
        before: The current version, removed or not; None: the name has never been used.
        group: The request's row.
        changed_at: The time of the change.

    Raises:
        StaleEpochError: Rule 2: the epoch would decrease.
        ConflictError: Rule 2: the epoch would have another master.
    """
    is_new = before is None or not before.is_live
    if before is not None and before.is_live:
        _check_epoch(before.group, group)
    kind: ChangeKind = "created" if is_new else "changed"
    number, previous = _next_of(before)
    version = _version(number, previous, kind, content_of(group))
    view = BrokerGroupView(
        **group.model_dump(),
        broker_name=broker_name,
        version=version,
        number=number,
        changed_at=changed_at,
    )
    assert view.master in view.in_sync  # rule 1
    return GroupRow(
        broker_name, number, version, previous, kind, changed_at, group.by, group.reason, view
    )


def removed_row(
    before: GroupRow, by: str | None, reason: str | None, changed_at: datetime
) -> GroupRow:
    """Return the version in which the group is removed; *before* is the current one."""
    assert before.is_live
    number, previous = _next_of(before)
    version = _version(number, previous, "removed", content_of_removal(by, reason))
    return GroupRow(
        before.broker_name,
        number,
        version,
        previous,
        "removed",
        changed_at,
        by,
        reason,
        before.group,
    )


def _next_of(before: GroupRow | None) -> tuple[int, str | None]:
    return (1, None) if before is None else (before.number + 1, before.version)


def _version(number: int, previous: str | None, kind: ChangeKind, content: str) -> str:
    text = json.dumps([previous, kind, content])
    return f"{number}-{hashlib.sha256(text.encode()).hexdigest()[:HASH_SIZE]}"


def _check_epoch(current: BrokerGroupView, group: BrokerGroupPut) -> None:
    if group.epoch < current.epoch:
        detail = f"expected epoch {current.epoch} or later, found {group.epoch}"
        raise StaleEpochError(
            detail,
            fix=f"read the group again; a new term has epoch {current.epoch + 1} or later",
            errors=[{"pointer": "/body/epoch", "detail": detail}],
        )
    if group.epoch == current.epoch and group.master != current.master:
        detail = (
            f"expected master {_named(current.master)} in epoch {current.epoch}, found "
            f"{_named(group.master)}"
        )
        raise ConflictError(
            detail,
            fix=f"a new master begins a new term: put epoch {current.epoch + 1} or later",
            errors=[{"pointer": "/body/master", "detail": detail}],
        )


def _named(replica: ReplicaName) -> str:
    return f"{replica.replica_id} ({replica.uid})"
