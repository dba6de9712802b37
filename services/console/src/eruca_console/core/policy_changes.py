"""A change of the rules as rows: who gains or loses what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eruca.contract.policies import PolicyDifferences
from eruca_console.core.texts import N_


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of a change.

    Attributes:
        kind: What it concerns, a text of the catalogues.
        subject: The principal, the key, the issuer, the quota or the namespace.
        detail: The right and its resource; empty: there is none.
        before: The state before, in the rules' words; empty: there was nothing.
        after: The state after; empty: there is nothing any more.
    """

    kind: str
    subject: str
    detail: str = ""
    before: str = ""
    after: str = ""

    @property
    def takes_away(self) -> bool:
        """True if somebody may do less than before."""
        return self.after in ("", "refused")


def effects_of(differences: PolicyDifferences) -> list[Effect]:
    """Return all effects of a change, the rights first."""
    found = [
        Effect(N_("right"), one.principal, f"{one.right} {one.on}", one.before, one.after)
        for one in differences.rights
    ]
    valid = N_("valid")
    for kind, added, removed, changed in (
        (N_("key"), *_of_keys(differences)),
        (
            N_("issuer"),
            differences.issuers_added,
            differences.issuers_removed,
            differences.issuers_changed,
        ),
        (N_("quota"), differences.quotas_added, differences.quotas_removed, ()),
        (N_("namespace"), differences.namespaces_added, differences.namespaces_removed, ()),
    ):
        found += [Effect(kind, one, after=valid) for one in added]
        found += [Effect(kind, one, before=valid) for one in removed]
        found += [Effect(kind, one, before=valid, after=N_("changed")) for one in changed]
    return found


def _of_keys(
    differences: PolicyDifferences,
) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    return differences.keys_added, differences.keys_removed, differences.keys_changed
