"""The change of the rules that somebody wants, as its URL and its form say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eruca.contract.access import PolicyDocument
from eruca.contract.errors import ValidationError
from eruca_console.cluster.reading import Reading
from eruca_console.core.policy_entries import (
    FIELDS,
    KINDS,
    YES,
    with_entry,
    without_entry,
)
from eruca_console.core.version_numbers import version_number

NAMES: Final = tuple(dict.fromkeys(name for fields in FIELDS.values() for name in fields))
PARAMETERS: Final = ("kind", "entry", "remove", "restore", "version", *NAMES)


@dataclass(frozen=True, slots=True)
class Wish:
    """A change of the rules.

    Attributes:
        kind: The kind of the entry; empty: an earlier version is wanted back.
        place: Of the entry; empty: a new one.
        removes: Whether the entry is removed.
        restored: The number of the version that is wanted back.
        version: The version that somebody has seen; empty: the URL names none.
        fields: Those of the form, as they were typed.
    """

    kind: str
    place: str
    removes: bool
    restored: int | None
    version: str
    fields: Mapping[str, str]

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Wish:
        """Return the wish that parameters or fields say.

        Raises:
            ValidationError: One is invalid, or they fit no change.
        """
        kind, place = given.get("kind", ""), given.get("entry", "")
        restored = version_number(given.get("restore", ""), "restore")
        if (kind in KINDS) == (restored is not None) or (kind and kind not in KINDS):
            raise ValidationError(
                f"query.kind: expected one of {', '.join(KINDS)}, or query.restore alone, found "
                f"{kind[:20]!r}",
                fix="choose a rule of the list",
            )
        removes = given.get("remove", "") == YES
        version = given.get("version", "")
        if (removes and not place) or (place and not version):
            raise ValidationError(
                "query.entry: expected an entry and the version that has it",
                fix="choose a rule of the list",
            )
        fields = {name: given.get(name, "") for name in FIELDS.get(kind, ())}
        return cls(kind, place, removes, restored, version, fields)

    async def proposed(self, reading: Reading, current: PolicyDocument) -> PolicyDocument:
        """Return the policy that the wish makes of the current one.

        Keys stay as they are: one that was revoked since does not come back.

        Raises:
            EntryFaultsError: A field is invalid.
            NotFoundError: There is no such entry, or no such version.
        """
        if self.restored is not None:
            old = (await reading.policy_version(self.restored)).value.policy
            return old.model_copy(update={"keys": current.keys})
        if self.removes:
            return without_entry(current, self.kind, self.place)
        return with_entry(current, self.kind, self.place, self.fields)

    def hidden(self) -> dict[str, str]:
        """Return the fields by which the form that does it says the same."""
        named = {
            "kind": self.kind,
            "entry": self.place,
            "remove": YES if self.removes else "",
            "restore": "" if self.restored is None else str(self.restored),
            **self.fields,
        }
        return {name: value for name, value in named.items() if value}
