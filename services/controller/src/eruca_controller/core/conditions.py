"""The conditions of a change: ``If-Match`` and ``If-None-Match``, read exactly.

A tag is a version in double quotes, as in the header ``ETag``. A weak tag (``W/"…"``) stands for an
equivalent row, and a change must know the row itself; so it is refused here. ``*`` in If-Match
stands for any version, and in If-None-Match for a group that does not exist.

Source: RFC 9110, sections 8.8.3, 13.1.1 and 13.1.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eruca.contract.errors import PreconditionRequiredError, ValidationError
from eruca.contract.errors.shown import shown

ANY: Final = "*"
TAGS_SIZE_MAX: Final = 1_024  # characters of either header
_LIST: Final = re.compile(r'[ \t]*(?:W/)?"[\x21\x23-\x7e]*"[ \t]*(?:,|$)')
_FORM: Final = 'expected the ETag that you have read, with its double quotes, as in "12-5f0c9a6e1b"'


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition under which a group may be changed.

    Attributes:
        creates: The group must not exist.
        versions: It must have one of these versions; None: any.
    """

    creates: bool
    versions: frozenset[str] | None = None

    def allows(self, version: str | None) -> bool:
        """Return whether it holds for a group of this version; None: one that does not exist."""
        if self.creates or version is None:
            return self.creates and version is None
        return self.versions is None or version in self.versions


def condition_of(if_match: str | None, if_none_match: str | None = None) -> Condition:
    """Return the condition that a request's headers state.

    Raises:
        PreconditionRequiredError: They state none.
        ValidationError: They are malformed, or state two.
    """
    if if_match is not None and if_none_match is not None:
        raise ValidationError.at(
            "/header/if-none-match",
            "found If-Match too; a request has one condition",
            fix="send If-Match to change the group, or If-None-Match: * to create it",
        )
    if if_match is not None:
        if if_match.strip() == ANY:
            return Condition(creates=False)
        return Condition(creates=False, versions=strong_versions(if_match, "/header/if-match"))
    if if_none_match is None:
        raise PreconditionRequiredError("the request has neither If-Match nor If-None-Match")
    if if_none_match.strip() != ANY:
        raise ValidationError.at(
            "/header/if-none-match",
            f"expected *, found {shown(if_none_match)}",
            fix="send If-None-Match: * to create the group, or If-Match to change it",
        )
    return Condition(creates=True)


def strong_versions(header: str, pointer: str) -> frozenset[str]:
    """Return the versions of a list of strong tags.

    Raises:
        ValidationError: The list is malformed, or has a weak tag.
    """
    tags = _tags(header, pointer)
    if any(tag.startswith("W/") for tag in tags):
        raise ValidationError.at(
            pointer,
            "found a weak tag; a change needs a strong one",
            fix='leave out W/ before the "',
        )
    return frozenset(tag[1:-1] for tag in tags)


def known_versions(header: str | None) -> frozenset[str] | None:
    """Return the versions in a reader's ``If-None-Match``; None: ``*``, any version.

    A cache on the way may have made a tag weak, which makes no difference to a reader.

    Raises:
        ValidationError: The list is malformed.
    """
    if header is None:
        return frozenset()
    if header.strip() == ANY:
        return None
    tags = _tags(header, "/header/if-none-match")
    return frozenset(tag.removeprefix("W/")[1:-1] for tag in tags)


def _tags(header: str, pointer: str) -> list[str]:
    tags: list[str] = []
    position = 0
    while position < len(header) or not tags:
        found = _LIST.match(header, position)
        if found is None:
            raise ValidationError.at(pointer, f"{_FORM}; found {shown(header)}")
        tags.append(found[0].rstrip(", \t").lstrip())
        position = found.end()
    return tags
