"""Policies as lines, one for each role, rule, quota, namespace, issuer and key; their differences.

The order of rules decides nothing, so two policies are compared as sets of lines. Equal lines
count: a rule that stands twice and then once has one line less.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from eruca.contract.access import PolicyDocument
from eruca.contract.issuers import TokenIssuer
from eruca.core.access.roles import PREDEFINED_ROLES


@dataclass(frozen=True, slots=True)
class LineDifferences:
    """The lines by which two policies differ.

    Attributes:
        lines: Those of only one of them, each with ``-`` (of the first) or ``+`` (of the second),
            in the order of kinds and then of texts.
        same_count: The number of lines that both have.
    """

    lines: tuple[tuple[str, str], ...]
    same_count: int


def policy_lines(document: PolicyDocument) -> list[str]:
    """Return roles, rules, quotas and namespaces, in the words of the explanations."""
    roles = (_role(name, members) for name, members in document.roles.items())
    return [
        *roles,
        *map(str, document.rules),
        *(f"quota: {quota}" for quota in document.quotas),
        *(f"namespace: {namespace}" for namespace in document.namespaces),
    ]


def line_differences(before: PolicyDocument, after: PolicyDocument) -> LineDifferences:
    """Return the lines by which two policies differ; of keys only ids, holders and times."""
    old, new = Counter(_all_lines(before)), Counter(_all_lines(after))
    only = [(line, "-") for line in (old - new).elements()]
    only += [(line, "+") for line in (new - old).elements()]
    only.sort(key=lambda one: (one[0], one[1] == "+"))
    return LineDifferences(tuple((sign, line[1]) for line, sign in only), (old & new).total())


def _all_lines(document: PolicyDocument) -> list[tuple[int, str]]:
    """Return each line with the number of its kind, by which lines are put in order."""
    kinds = [
        [_role(name, members) for name, members in document.roles.items()],
        [str(rule) for rule in document.rules],
        [f"quota: {quota}" for quota in document.quotas],
        [f"namespace: {namespace}" for namespace in document.namespaces],
        [_issuer(issuer) for issuer in document.issuers],
        [
            f"key {key.id} of {key.principal}"
            + ("" if key.expires_at is None else f" until {key.expires_at.isoformat()}")
            for key in document.keys
        ],
    ]
    return [(kind, line) for kind, lines in enumerate(kinds) for line in lines]


def _issuer(issuer: TokenIssuer) -> str:
    values = issuer.model_dump_json(exclude={"name"}, exclude_defaults=True)
    return f"issuer {issuer.name}: {values}"


def _role(name: str, members: list[str]) -> str:
    about = f" ({PREDEFINED_ROLES[name]})" if name in PREDEFINED_ROLES else ""
    return f"role:{name}{about}: {', '.join(members) or 'nobody'}"
