"""Decide by rules: compile them once, then find the most specific one that applies.

The rules of a principal are those to itself and to its roles. Among those whose right, kind and
pattern match, and whose conditions hold, the most specific pattern decides: a name before a longer
beginning before a shorter one before ``*``. At equal patterns a denial wins. Without a rule the
answer is no.

Rules are indexed by holder, right and kind. Patterns are keys of dictionaries, names and beginnings
apart. A decision looks up the name, then its beginnings of those lengths that occur, the longest
first. So its cost does not grow with the number of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from eruca.contract.access import (
    ANY,
    ROLE_PREFIX,
    AccessExplanation,
    AccessRule,
    PolicyDocument,
    Resource,
    ResourceKind,
    Right,
)
from eruca.core.access.namespaces import Namespace, Namespaces
from eruca.core.access.roles import PREDEFINED_RULES

FOREVER_MS: Final = 2**63 - 1
OUTSIDE_FIX: Final = "use a principal without a namespace, or a resource in it"
_Network: TypeAlias = IPv4Network | IPv6Network
_Key: TypeAlias = tuple[Right, ResourceKind]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A rule with its conditions parsed."""

    rule: AccessRule
    grants: bool
    networks: tuple[_Network, ...]
    until_ms: int

    def holds(self, address: str, now_ms: int) -> bool:
        """Return whether the rule applies to a request from *address* at a time.

        An unknown address may be any: a denial applies to it, and a grant does not.
        """
        if now_ms >= self.until_ms:
            return False
        if not self.networks:
            return True
        known = _parsed(address)
        return not self.grants if known is None else any(known in it for it in self.networks)

    def condition(self) -> str:
        """Return its conditions in words; empty: there are none."""
        parts = [" from " + ", ".join(map(str, self.networks))] if self.networks else []
        if self.rule.until is not None:
            parts.append(f" until {self.rule.until.isoformat()}")
        return "".join(parts)


@dataclass(slots=True)
class _Index:
    """The rules of one holder about one right on one kind of resources."""

    by_name: dict[str, list[_Compiled]] = field(default_factory=dict)
    by_beginning: dict[str, list[_Compiled]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)  # of the beginnings, the longest first

    def add(self, pattern: str, rule: _Compiled) -> None:
        """Add *rule* under *pattern*."""
        if pattern.endswith(ANY):
            self.by_beginning.setdefault(pattern.removesuffix(ANY), []).append(rule)
        else:
            self.by_name.setdefault(pattern, []).append(rule)

    def finish(self) -> None:
        """Prepare the look-ups; no rule is added afterwards."""
        self.lengths = sorted({len(beginning) for beginning in self.by_beginning}, reverse=True)


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdict on a right of a principal, its reason, and the time for which it holds.

    Attributes:
        allowed: Whether it has the right.
        rule: The rule that decides; None: no rule matches.
        good_until_ms: From then on the rules may decide otherwise; milliseconds since 1970.
        depends_on_address: Whether a request from another address may be decided otherwise.
    """

    allowed: bool
    rule: AccessRule | None
    good_until_ms: int = FOREVER_MS
    depends_on_address: bool = False


class Policy:
    """Compiled rules.

    Args:
        document: The roles, rules and namespaces; keys are of no interest here.
    """

    def __init__(self, document: PolicyDocument) -> None:
        self.namespaces = Namespaces(document)
        self._indexes: dict[str, dict[_Key, _Index]] = {}
        self._roles: dict[str, list[str]] = {}
        for role, members in document.roles.items():
            for member in members:
                self._roles.setdefault(member, []).append(ROLE_PREFIX + role)
        for rule in (*PREDEFINED_RULES, *document.rules):
            self._add(rule)
        for indexes in self._indexes.values():
            for index in indexes.values():
                index.finish()

    def roles_of(self, principal: str) -> Sequence[str]:
        """Return the roles of *principal*, each as ``role:NAME``."""
        return self._roles.get(principal, ())

    def has(self, principal: str) -> bool:
        """Return whether a rule or a role names *principal*."""
        return principal in self._indexes or principal in self._roles

    def decide(
        self,
        principal: str,
        right: Right,
        resource: Resource,
        *,
        address: str = "",
        now_ms: int = 0,
        roles: Sequence[str] = (),
    ) -> Decision:
        """Decide whether *principal* has *right* on *resource*.

        Args:
            principal: Its name.
            right: The right.
            resource: One resource, not a pattern.
            address: The client's IP address; empty: unknown.
            now_ms: The time, in milliseconds since 1970.
            roles: Roles that its credentials give it, each as ``role:NAME``.
        """
        if self.is_outside(principal, resource, roles=roles):
            return Decision(allowed=False, rule=None)
        key = (right, resource.kind)
        own_roles = self._roles.get(principal, ())
        indexes = [
            index
            for holder in (
                principal,
                *(dict.fromkeys((*own_roles, *roles)) if roles else own_roles),
            )
            if (index := self._indexes.get(holder, {}).get(key)) is not None
        ]
        depends_on_address = False
        for rules in _by_specificity(indexes, resource.name):
            depends_on_address |= any(rule.networks for rule in rules)
            applying = [rule for rule in rules if rule.holds(address, now_ms)]
            if applying:
                chosen = next((rule for rule in applying if not rule.grants), applying[0])
                good_until_ms = min(rule.until_ms for rule in applying)
                return Decision(chosen.grants, chosen.rule, good_until_ms, depends_on_address)
        return Decision(allowed=False, rule=None, depends_on_address=depends_on_address)

    def is_outside(self, principal: str, resource: Resource, *, roles: Sequence[str] = ()) -> bool:
        """Return whether *principal* has a namespace, and *resource* is not in it.

        Then it has no right on the resource, whatever the rules say.
        """
        namespaces = self.namespaces.of(principal, roles)
        return bool(namespaces) and not _has(namespaces, resource)

    def explain(
        self,
        principal: str,
        right: Right,
        resource: Resource,
        *,
        address: str = "",
        now_ms: int = 0,
        roles: Sequence[str] = (),
    ) -> AccessExplanation:
        """Decide as :meth:`decide`, and say why; a refusal says which grant is missing."""
        decision = self.decide(
            principal, right, resource, address=address, now_ms=now_ms, roles=roles
        )
        if self.is_outside(principal, resource, roles=roles):
            return AccessExplanation(
                allowed=False,
                reason=self.outside(principal, resource, roles=roles),
                rule=None,
                fix=OUTSIDE_FIX,
            )
        if decision.rule is None:
            reason = f"no rule gives {principal} {right} on {resource}"
        else:
            verb = "grants" if decision.allowed else "denies"
            reason = f"the most specific rule that applies {verb} it"
        return AccessExplanation(
            allowed=decision.allowed,
            reason=reason,
            rule=None if decision.rule is None else str(decision.rule),
            fix=None if decision.allowed else f"grant {right} on {resource} to {principal}",
        )

    def outside(self, principal: str, resource: Resource, *, roles: Sequence[str] = ()) -> str:
        """Return why *principal* has no right on *resource*, which is outside its namespace."""
        names = " and ".join(one.name for one in self.namespaces.of(principal, roles))
        if " and " in names:
            return f"{principal} is in several namespaces, {names}; nothing is in all of them"
        return f"{principal} is in the namespace {names}, and {resource} is not"

    def patterns_of(self, principal: str) -> set[tuple[Right, Resource]]:
        """Return the rights and patterns about which rules say something for *principal*."""
        found: set[tuple[Right, Resource]] = set()
        for holder in (principal, *self._roles.get(principal, ())):
            for (right, kind), index in self._indexes.get(holder, {}).items():
                found.update((right, Resource(kind, name)) for name in index.by_name)
                found.update((right, Resource(kind, name + ANY)) for name in index.by_beginning)
        return found

    def conditions(
        self, principal: str, right: Right, pattern: Resource, *, now_ms: int
    ) -> tuple[str, ...]:
        """Return how *pattern* is decided for *principal*, whatever its address and the time.

        Each step says a verdict and its condition; the first one whose condition holds decides.
        Two equal results mean equal decisions. For a pattern with a star, the result is about all
        names with its beginning that no longer pattern matches.
        """
        # No name has this character. So of all patterns only the beginning itself matches.
        name = pattern.name.replace(ANY, "\0")
        key = (right, pattern.kind)
        indexes = [
            index
            for holder in (principal, *self._roles.get(principal, ()))
            if (index := self._indexes.get(holder, {}).get(key)) is not None
        ]
        steps: list[tuple[bool, str]] = []
        for rules in _by_specificity(indexes, name):
            holding = [rule for rule in rules if now_ms < rule.until_ms]
            steps += [
                (rule.grants, rule.condition()) for rule in sorted(holding, key=_denials_first)
            ]
            if any(not condition for _, condition in steps):
                break
        last = next((i for i, (_, condition) in enumerate(steps) if not condition), None)
        steps = list(dict.fromkeys(steps if last is None else steps[: last + 1]))
        while steps and not steps[-1][0]:
            steps.pop()  # without a rule the answer is no, too
        return tuple(
            ("allowed" if grants else "refused") + condition for grants, condition in steps
        )

    def _add(self, rule: AccessRule) -> None:
        until = rule.until
        compiled = _Compiled(
            rule,
            rule.grants,
            tuple(map(ip_network, rule.networks)),
            FOREVER_MS if until is None else round(until.timestamp() * 1000),
        )
        patterns = [Resource.of(text) for text in dict.fromkeys(rule.on)]
        for holder in dict.fromkeys(rule.to):
            indexes = self._indexes.setdefault(holder, {})
            for right in dict.fromkeys(rule.rights):
                for kind, pattern in patterns:
                    indexes.setdefault((right, kind), _Index()).add(pattern, compiled)


def _has(namespaces: Sequence[Namespace], resource: Resource) -> bool:
    return len(namespaces) == 1 and namespaces[0].has(resource)


def _denials_first(rule: _Compiled) -> bool:
    return rule.grants


def _by_specificity(indexes: Sequence[_Index], name: str) -> Iterable[list[_Compiled]]:
    """Yield the rules whose pattern matches *name*, those of equal patterns together."""
    named = [rule for index in indexes for rule in index.by_name.get(name, ())]
    if named:
        yield named
    if len(indexes) == 1:
        lengths = indexes[0].lengths
    else:
        lengths = sorted({length for index in indexes for length in index.lengths}, reverse=True)
    size = len(name)
    for length in lengths:
        if length <= size:
            beginning = name[:length]
            found = [rule for index in indexes for rule in index.by_beginning.get(beginning, ())]
            if found:
                yield found


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address; None if it is unknown."""
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped  # an IPv4 client of a socket that accepts both families
    return parsed
