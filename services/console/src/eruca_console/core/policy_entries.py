"""Entries of the rules as rows of a list and as fields of a form: rules, roles, quotas, namespaces.

An entry is known by its kind and its place: the name of a role, the number of another one. A place
means an entry of one version only, so an address that changes one names the version, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pydantic

from eruca.contract.access import (
    QUOTA_NAMES,
    ROLE_PREFIX,
    AccessRule,
    PolicyDocument,
    Right,
)
from eruca.contract.errors import NotFoundError, ValidationError
from eruca_console.core.texts import N_
from eruca_console.core.times import typed_time

RULE: Final = "rule"
ROLE: Final = "role"
QUOTA: Final = "quota"
NAMESPACE: Final = "namespace"
RIGHTS: Final[Sequence[str]] = tuple(right.value for right in Right)
FIELDS: Final[Mapping[str, Sequence[str]]] = {
    RULE: ("effect", *RIGHTS, "on", "to", "from", "until"),
    ROLE: ("name", "members"),
    QUOTA: ("to", *QUOTA_NAMES),
    NAMESPACE: ("name", "to"),
}
KINDS: Final = tuple(FIELDS)
YES: Final = "yes"
_TABLES: Final = {RULE: "rules", ROLE: "roles", QUOTA: "quotas", NAMESPACE: "namespaces"}
_FIELD_OF: Final = {"allow": "rights", "deny": "rights", "networks": "from"}
_WHOLE: Final = {RULE: "rights", ROLE: "members", QUOTA: "to", NAMESPACE: "name"}
_NAMES_OF_KINDS: Final = (N_("rule"), N_("role"))  # the others are texts of the changes


class EntryFaultsError(Exception):
    """An entry is invalid; each fault belongs to a field of its form.

    Args:
        faults: The fields, each with its fault.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Attributes:
        kind: One of ``KINDS``.
        place: Where it stands.
        text: Its line, in the words of the explanations.
        holders: Principals and roles that it concerns.
    """

    kind: str
    place: str
    text: str
    holders: Sequence[str]


def entries_of(document: PolicyDocument) -> list[Entry]:
    """Return all entries of a policy."""
    found = [
        Entry(ROLE, name, ", ".join(members), (ROLE_PREFIX + name, *members))
        for name, members in document.roles.items()
    ]
    found += [
        Entry(RULE, str(place), str(rule), rule.to) for place, rule in enumerate(document.rules)
    ]
    found += [
        Entry(QUOTA, str(place), str(quota), quota.to)
        for place, quota in enumerate(document.quotas)
    ]
    found += [
        Entry(NAMESPACE, str(place), str(one), one.to)
        for place, one in enumerate(document.namespaces)
    ]
    return found


def of_holder(document: PolicyDocument, holder: str) -> list[Entry]:
    """Return the entries that concern a principal, by its roles, too; or those of a role."""
    roles = {ROLE_PREFIX + name for name, members in document.roles.items() if holder in members}
    wanted = roles | {holder}
    return [one for one in entries_of(document) if not wanted.isdisjoint(one.holders)]


def fields_of(document: PolicyDocument, kind: str, place: str) -> dict[str, str]:
    """Return the fields of a form for the entry at a place.

    Raises:
        NotFoundError: There is no such entry.
    """
    found = _entry_at(document, kind, place)
    if kind == ROLE:
        return {"name": place, "members": "\n".join(found)}
    if kind == RULE:
        assert isinstance(found, AccessRule)
        return {
            "effect": "grant" if found.grants else "deny",
            **{right: YES if right in found.rights else "" for right in RIGHTS},
            "on": "\n".join(found.on),
            "to": "\n".join(found.to),
            "from": "\n".join(found.networks),
            "until": "" if found.until is None else found.until.isoformat().replace("+00:00", ""),
        }
    values = found.model_dump(exclude_none=True)
    return {
        name: "\n".join(value) if isinstance(value := values.get(name, ""), list) else str(value)
        for name in FIELDS[kind]
    }


def with_entry(
    document: PolicyDocument, kind: str, place: str, fields: Mapping[str, str]
) -> PolicyDocument:
    """Return the policy with another entry at *place*; an empty place adds one.

    Raises:
        EntryFaultsError: A field is invalid.
        NotFoundError: There is no such entry to change.
    """
    if place:
        _entry_at(document, kind, place)
    new = _checked(kind, fields)
    if kind == ROLE:
        [(name, members)] = new.items()
        if name != place and name in document.roles:
            raise EntryFaultsError({"name": f"the role {name} exists already"})
        kept = {one: document.roles[one] for one in document.roles if one != place}
        return document.model_copy(update={"roles": {**kept, name: members}})
    table = [*getattr(document, _TABLES[kind])]
    if place:
        table[int(place)] = new[0]
    else:
        table.append(new[0])
    if kind == NAMESPACE:
        _check_namespaces(table)
    return document.model_copy(update={_TABLES[kind]: table})


def without_entry(document: PolicyDocument, kind: str, place: str) -> PolicyDocument:
    """Return the policy without the entry at *place*.

    Raises:
        NotFoundError: There is no such entry.
    """
    _entry_at(document, kind, place)
    table = _TABLES[kind]
    if kind == ROLE:
        roles = {name: document.roles[name] for name in document.roles if name != place}
        return document.model_copy(update={table: roles})
    kept = [one for at, one in enumerate(getattr(document, table)) if at != int(place)]
    return document.model_copy(update={table: kept})


def _entry_at(document: PolicyDocument, kind: str, place: str) -> Any:  # noqa: ANN401 - of any kind
    if kind == ROLE and place in document.roles:
        return document.roles[place]
    if kind != ROLE and place.isascii() and place.isdecimal() and len(place) < 10:
        table = getattr(document, _TABLES[kind])
        if int(place) < len(table):
            return table[int(place)]
    raise NotFoundError(f"the rules have no {kind} {place[:64]!r}", fix="choose one of the list")


def _checked(kind: str, fields: Mapping[str, str]) -> Any:  # noqa: ANN401 - a table of any kind
    given = {name: fields.get(name, "").strip() for name in FIELDS[kind]}
    entry = _raw_rule(given) if kind == RULE else _raw(kind, given)
    table = _TABLES[kind]
    content = {entry["name"]: entry["members"]} if kind == ROLE else [entry]
    try:
        return getattr(PolicyDocument.model_validate({table: content}), table)
    except pydantic.ValidationError as error:
        raise EntryFaultsError(_faults(kind, error)) from None


def _raw_rule(given: Mapping[str, str]) -> dict[str, Any]:
    if given["effect"] not in ("grant", "deny"):
        raise EntryFaultsError({"effect": "expected grant or deny"})
    try:
        until = typed_time(given["until"], "until")
    except ValidationError as error:
        raise EntryFaultsError({"until": error.detail.partition(": ")[2]}) from None
    return {
        "allow" if given["effect"] == "grant" else "deny": [
            right for right in RIGHTS if given[right] == YES
        ],
        "on": given["on"].split(),
        "to": given["to"].split(),
        "from": given["from"].split(),
        "until": until,
    }


def _raw(kind: str, given: Mapping[str, str]) -> dict[str, Any]:
    if kind == QUOTA:
        limits = {name: given[name] for name in QUOTA_NAMES if given[name]}
        return {"to": given["to"].split(), **limits}
    lists = {"to", "members"}
    return {name: text.split() if name in lists else text for name, text in given.items()}


def _faults(kind: str, error: pydantic.ValidationError) -> dict[str, str]:
    """Return the first fault of each field; one that concerns no field belongs to the main one."""
    found: dict[str, str] = {}
    for fault in error.errors(include_url=False, include_input=False):
        place = [str(one) for one in fault["loc"]][2:]
        if kind == ROLE:
            field = "name" if place == ["[key]"] else "members"
        else:
            field = next(iter(place), _WHOLE[kind])
        found.setdefault(_FIELD_OF.get(field, field), fault["msg"].removeprefix("Value error, "))
    return found


def _check_namespaces(table: Sequence[object]) -> None:
    """Check what concerns several namespaces: their beginnings, and their holders."""
    try:
        PolicyDocument.model_validate({"namespaces": table})
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]["msg"]
        field = "to" if "holder" in fault else "name"
        raise EntryFaultsError({field: fault.removeprefix("Value error, ")}) from None
