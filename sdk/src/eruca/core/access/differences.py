"""Compare two policies: the rights and keys that a change gives and takes.

Rights are compared for each principal that either policy names, on each pattern about which its
rules say something. The comparison is complete: names that match the same patterns are decided
alike, and each set of such names has one pattern here. Namespaces are compared apart from rights:
they change the meaning of every name that their holders say.
"""

from __future__ import annotations

from collections.abc import Iterator

from eruca.contract.access import ROLE_PREFIX, PolicyDocument, StoredKey
from eruca.contract.policies import DIFFERENCE_COUNT_MAX, AccessDifference, PolicyDifferences
from eruca.core.access.policy import Policy

_REFUSED = "refused"
_ALLOWED = "allowed"


def differences(before: PolicyDocument, after: PolicyDocument, *, now_ms: int) -> PolicyDifferences:
    """Return what a change does.

    Args:
        before: The policy before it; an empty one if there is none.
        after: The policy after it.
        now_ms: The time, in milliseconds since 1970; rules that have expired say nothing.
    """
    rights = list(_rights(before, after, now_ms))
    old_issuers, new_issuers = (
        {issuer.name: issuer for issuer in one.issuers} for one in (before, after)
    )
    old, new = ({key.id: key for key in one.keys} for one in (before, after))
    return PolicyDifferences(
        rights=rights[:DIFFERENCE_COUNT_MAX],
        right_count=len(rights),
        keys_added=[_said(key) for key in after.keys if key.id not in old],
        keys_removed=[_said(key) for key in before.keys if not _stays(key, new.get(key.id))],
        keys_changed=[
            _said(key)
            for key in before.keys
            if _stays(key, new.get(key.id)) and new[key.id].expires_at != key.expires_at
        ],
        issuers_added=sorted(new_issuers.keys() - old_issuers.keys()),
        issuers_removed=sorted(old_issuers.keys() - new_issuers.keys()),
        issuers_changed=sorted(
            name
            for name in old_issuers.keys() & new_issuers.keys()
            if old_issuers[name] != new_issuers[name]
        ),
        quotas_added=sorted(_quotas(after) - _quotas(before)),
        quotas_removed=sorted(_quotas(before) - _quotas(after)),
        namespaces_added=sorted(_namespaces(after) - _namespaces(before)),
        namespaces_removed=sorted(_namespaces(before) - _namespaces(after)),
    )


def losers(found: PolicyDifferences) -> list[str]:
    """Return who loses something by a change, sorted: principals, and what else ends or changes.

    A right that only changes its conditions counts, because some requests may be refused then; so
    do rights beyond the first thousand, which the differences do not name.
    """
    lost = (one for one in found.rights if one.before != _REFUSED and one.after != _ALLOWED)
    named = {right.principal for right in lost}
    named |= {f"the holder of {key}" for key in (*found.keys_removed, *found.keys_changed)}
    named |= {f"holders of tokens of {name}" for name in found.issuers_removed}
    named |= {f"holders of tokens of {name}" for name in found.issuers_changed}
    named |= {f"those with a quota of {quota}" for quota in found.quotas_added}
    named |= {
        f"who means other names: {namespace}"
        for namespace in (*found.namespaces_added, *found.namespaces_removed)
    }
    if found.right_count > len(found.rights):
        named.add("principals that are not shown")
    return sorted(named)


def principals_of(document: PolicyDocument) -> set[str]:
    """Return every principal that a policy names, and the roles that tokens give."""
    found = {key.principal for key in document.keys}
    found.update(member for members in document.roles.values() for member in members)
    found.update(
        ROLE_PREFIX + role for issuer in document.issuers for role in issuer.roles.values()
    )
    holders = {holder for rule in document.rules for holder in rule.to}
    return found | {holder for holder in holders if not holder.startswith(ROLE_PREFIX)}


def _rights(
    before: PolicyDocument, after: PolicyDocument, now_ms: int
) -> Iterator[AccessDifference]:
    old, new = Policy(before), Policy(after)
    for principal in sorted(principals_of(before) | principals_of(after)):
        patterns = old.patterns_of(principal) | new.patterns_of(principal)
        for right, pattern in sorted(patterns, key=lambda one: (str(one[1]), one[0])):
            was, becomes = (
                "; else ".join(policy.conditions(principal, right, pattern, now_ms=now_ms))
                for policy in (old, new)
            )
            if was != becomes:
                yield AccessDifference(
                    principal=principal,
                    right=right,
                    on=str(pattern),
                    before=was or _REFUSED,
                    after=becomes or _REFUSED,
                )


def _quotas(document: PolicyDocument) -> set[str]:
    return {str(quota) for quota in document.quotas}


def _namespaces(document: PolicyDocument) -> set[str]:
    return {
        f"{namespace.name} for {holder}"
        for namespace in document.namespaces
        for holder in namespace.to
    }


def _stays(key: StoredKey, after: StoredKey | None) -> bool:
    """Return whether a key is still the same one: its principal and its digest."""
    return after is not None and (key.principal, key.sha256) == (after.principal, after.sha256)


def _said(key: StoredKey) -> str:
    return f"{key.id} of {key.principal}"
