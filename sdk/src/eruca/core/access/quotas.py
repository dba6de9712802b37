"""Quotas: which limits a principal has by a policy.

The most specific quota wins, limit by limit: one that names the principal itself before one that
names a role of it. Among equals, the strictest wins. A principal without a quota has no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eruca.contract.access import ROLE_PREFIX, PolicyDocument


class Quotas:
    """The quotas of a policy.

    Args:
        document: The policy; only its quotas and roles are of interest here.
    """

    def __init__(self, document: PolicyDocument) -> None:
        self._limits: dict[str, dict[str, float]] = {}  # by holder
        for quota in document.quotas:
            for holder in dict.fromkeys(quota.to):
                self._limits[holder] = _strictest([self._limits.get(holder, {}), quota.limits])
        self._roles: dict[str, list[str]] = {}
        for role, members in document.roles.items():
            for member in members:
                self._roles.setdefault(member, []).append(ROLE_PREFIX + role)

    def limits_of(self, principal: str, roles: Sequence[str] = ()) -> Mapping[str, float]:
        """Return the limits of *principal* by their names; empty: it has none.

        Args:
            principal: Its name.
            roles: Roles that its credentials give it, each as ``role:NAME``.
        """
        if not self._limits:
            return {}
        held = (*self._roles.get(principal, ()), *roles)
        of_roles = _strictest(self._limits[role] for role in held if role in self._limits)
        return of_roles | self._limits.get(principal, {})


def _strictest(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for limits in several:
        for name, value in limits.items():
            found[name] = min(value, found.get(name, value))
    return found
