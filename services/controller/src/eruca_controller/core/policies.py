"""The policy, version by version, and the condition of its changes.

Each change has a number, which only grows, and a version: the number and a hash of the change and
of the version before it. So the same change to the same version has the same version, and a request
whose answer was lost can be repeated. A store that was restored from an older copy gives out old
numbers again, but not old versions.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from eruca.contract.access import PolicyDocument
from eruca.contract.policies import PolicyChange, PolicyDifferences, PolicyView
from eruca_controller.core.rows import HASH_SIZE

FIRST_NUMBER: Final = 1


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One version of the policy, with the change that made it.

    Attributes:
        number: Number of the change; it only grows.
        version: Identifies this version for ever.
        previous: The version before; None for the first one.
        changed_at: By the controller's clock.
        by: The principal that made the change.
        reason: The author's reason.
        policy: Everything that decides.
        differences: The effect of the change.
    """

    number: int
    version: str
    previous: str | None
    changed_at: datetime
    by: str
    reason: str
    policy: PolicyDocument
    differences: PolicyDifferences

    def view(self) -> PolicyView:
        """Return the answer about this version."""
        return PolicyView(
            number=self.number,
            version=self.version,
            changed_at=self.changed_at,
            by=self.by,
            reason=self.reason,
            policy=self.policy,
        )

    def change(self) -> PolicyChange:
        """Return the entry of the history."""
        return PolicyChange(
            number=self.number,
            version=self.version,
            changed_at=self.changed_at,
            by=self.by,
            reason=self.reason,
            rule_count=len(self.policy.rules),
            key_count=len(self.policy.keys),
            differences=self.differences,
        )

    def to_text(self) -> str:
        """Return the row as stores keep it."""
        kept: dict[str, Any] = {
            "number": self.number,
            "version": self.version,
            "previous": self.previous,
            "changed_at": self.changed_at.isoformat(),
            "by": self.by,
            "reason": self.reason,
            "policy": self.policy.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            "differences": self.differences.model_dump(mode="json"),
        }
        return json.dumps(kept, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str | bytes) -> Self:
        """Return the row that a store has kept.

        Raises:
            ValueError: The text is no such row.
            KeyError: A value is missing.
        """
        kept = json.loads(text)
        return cls(
            kept["number"],
            kept["version"],
            kept["previous"],
            datetime.fromisoformat(kept["changed_at"]),
            kept["by"],
            kept["reason"],
            PolicyDocument.model_validate(kept["policy"]),
            PolicyDifferences.model_validate(kept["differences"]),
        )


def next_row(
    before: PolicyRow | None,
    policy: PolicyDocument,
    differences: PolicyDifferences,
    *,
    by: str,
    reason: str,
    changed_at: datetime,
    above: int = 0,
) -> PolicyRow:
    """Return the version after *before*; its number is greater than *above*, too."""
    number = max(FIRST_NUMBER - 1 if before is None else before.number, above) + 1
    previous = None if before is None else before.version
    version = f"{number}-{_hash(previous, policy, by, reason)}"
    return PolicyRow(number, version, previous, changed_at, by, reason, policy, differences)


def is_result_of(row: PolicyRow, policy: PolicyDocument, *, by: str, reason: str) -> bool:
    """Return whether *row* is the result of this change to its previous version."""
    return row.version.partition("-")[2] == _hash(row.previous, policy, by, reason)


def _hash(previous: str | None, policy: PolicyDocument, by: str, reason: str) -> str:
    content = [previous, policy.model_dump(mode="json", by_alias=True), by, reason]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_SIZE]
