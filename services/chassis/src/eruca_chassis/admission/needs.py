"""The needs of an operation: the rights that its caller must have; declared beside its route.

An operation is open to everybody (``PUBLIC``), to every known caller (``KNOWN``), or needs rights
on resources. A resource's name is in the path, in the query or in the body::

    needs=Needs((On(("write",), "shelf", in_path("shelf")),))

The gate (:mod:`.gate`) asks for the rights on names in path and query before an endpoint sees the
request. Names elsewhere are known only to the endpoint. It declares them for the document, and asks
for the rights itself (:class:`.gate.Access`), before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl

RIGHT_MEMBER: Final = "x-eruca-right"  # of an operation in the document
SCHEMES: Final[dict[str, dict[str, str]]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, or a token of an issuer in the rules: "
        "`Authorization: Bearer eruca_…`",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "An API key as the password, with any user name",
    },
}
"""The security schemes of every service's document."""


class Demand(NamedTuple):
    """A right on one resource; any one of several rights is enough."""

    rights: tuple[str, ...]
    kind: str
    name: str  # empty: the kind has only one resource


class Place(NamedTuple):
    """A place in which a request says a resource's name."""

    part: Literal["path", "query", "body", "found", "own", ""]
    name: str = ""  # of the parameter, or of the member

    def __str__(self) -> str:
        return self.name if self.part == "path" else f"{self.part}.{self.name}".rstrip(".")


def in_path(name: str) -> Place:
    """Return the place of a path's parameter."""
    return Place("path", name)


def in_query(name: str) -> Place:
    """Return the place of a query's parameter; without it nothing is asked for."""
    return Place("query", name)


def in_body(member: str) -> Place:
    """Return the place of a body's member; the endpoint asks for the right."""
    return Place("body", member)


def found(what: str) -> Place:
    """Return the place of a name that is known only from what is found; the endpoint asks."""
    return Place("found", what)


OWN: Final = Place("own")
"""The service's own name."""
ONLY: Final = Place("")
"""The only resource of its kind."""


class On(NamedTuple):
    """A right on the resources of a kind that a request names; any of several rights."""

    rights: tuple[str, ...]
    kind: str
    place: Place = ONLY

    def __str__(self) -> str:
        name = f":{{{self.place}}}" if self.place.part else ""
        return f"{' or '.join(self.rights)} on {self.kind}{name}"


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of an operation: all rights that ``ons`` names, or only a known caller.

    Attributes:
        ons: The rights.
        is_public: Whether anybody may call it, without credentials.
        is_act: Whether each use is told to the gate, with its answer's status.
    """

    ons: tuple[On, ...] = ()
    is_public: bool = False
    is_act: bool = False

    def __and__(self, other: Needs) -> Needs:
        """Return what both need."""
        return Needs(
            (*self.ons, *other.ons),
            self.is_public and other.is_public,
            self.is_act or other.is_act,
        )

    def demands(
        self, parameters: Mapping[str, str], query: bytes, own_name: str
    ) -> Iterator[Demand]:
        """Yield the rights on resources that the request names in its path and query.

        Args:
            parameters: The path's, decoded.
            query: As sent.
            own_name: The service's.
        """
        for rights, kind, (part, name) in self.ons:
            if part == "path":
                yield Demand(rights, kind, parameters[name])
            elif part == "query":
                # All values: which one of several an endpoint would take makes no difference.
                pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
                for key, value in pairs:
                    if key == name:
                        yield Demand(rights, kind, value)
            elif part == "own":
                yield Demand(rights, kind, own_name)
            elif not part:
                yield Demand(rights, kind, "")

    def document(self, *, are_required: bool) -> dict[str, Any]:
        """Return the members of an operation's part of the OpenAPI document.

        Args:
            are_required: Whether the service refuses requests without credentials.
        """
        if self.is_public:
            return {RIGHT_MEMBER: ["public"], "security": []}
        schemes: list[dict[str, list[str]]] = [{name: []} for name in SCHEMES]
        said = [str(on) for on in self.ons] or ["any known caller"]
        return {RIGHT_MEMBER: said, "security": schemes if are_required else [{}, *schemes]}


PUBLIC: Final = Needs(is_public=True)
"""Anybody may call the operation, without credentials."""
KNOWN: Final = Needs()
"""Every caller with valid credentials may call the operation."""
