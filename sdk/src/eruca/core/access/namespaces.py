"""Namespaces: the names that a principal says, and the whole names that services know.

A principal of the namespace ``team-a-`` says ``orders``; the topic is ``team-a-orders``. Its group
``billing`` is ``team-a-billing``, whose retry topic ``%RETRY%team-a-billing`` it calls
``%RETRY%billing``. So the namespace stands before the group's name, as a service derives it.

Every name that the principal says is made whole, whatever it looks like. So it can name nothing
outside its namespace, no system topic either. The two directions are inverse: a whole name in the
namespace has exactly one short form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eruca.contract.access import (
    ROLE_PREFIX,
    PolicyDocument,
    Resource,
    ResourceKind,
    topic_resource,
)
from eruca.contract.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from eruca.contract.recall_handles import (
    MalformedRecallHandleError,
    decode_recall_handle,
    encode_recall_handle,
)


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace.

    Attributes:
        name: The beginning of its whole names.
    """

    name: str

    def whole_group(self, short: str) -> str:
        """Return the whole name of a group; an empty name stays one, which a service refuses."""
        return self.name + short if short else short

    def short_group(self, whole: str) -> str | None:
        """Return a group's name as the principal says it; None: it is outside the namespace."""
        return whole.removeprefix(self.name) if self._has(whole) else None

    def whole_topic(self, short: str) -> str:
        """Return the whole name of a topic; for a group's topic, the one of the whole group."""
        derivation, rest = _split(short)
        return derivation + self.whole_group(rest)

    def short_topic(self, whole: str) -> str | None:
        """Return a topic's name as the principal says it; None: it is outside the namespace."""
        derivation, rest = _split(whole)
        short = self.short_group(rest)
        return None if short is None else derivation + short

    def whole_recall_handle(self, short: str) -> str:
        """Return the handle with its topic's whole name; what is no handle stays as it is."""
        try:
            handle = decode_recall_handle(short)
        except MalformedRecallHandleError:
            return short
        return encode_recall_handle(handle._replace(topic=self.whole_topic(handle.topic)))

    def short_recall_handle(self, whole: str) -> str | None:
        """Return the handle with its topic's short name; None: it is outside the namespace."""
        try:
            handle = decode_recall_handle(whole)
        except MalformedRecallHandleError:
            return None
        topic = self.short_topic(handle.topic)
        return None if topic is None else encode_recall_handle(handle._replace(topic=topic))

    def whole_resource(self, short: str) -> str:
        """Return a resource of a rule with its whole name; what has no name stays as it is."""
        kind, colon, name = short.partition(":")
        if kind == ResourceKind.TOPIC:
            return kind + colon + self.whole_topic(name)
        return kind + colon + self.whole_group(name) if kind == ResourceKind.GROUP else short

    def has(self, resource: Resource) -> bool:
        """Return whether *resource* is inside; everything that is no topic or group is not."""
        kind, name = topic_resource(resource.name) if resource.kind in _TOPIC else resource
        return kind in _NAMED and self._has(name)

    def _has(self, whole: str) -> bool:
        return len(whole) > len(self.name) and whole.startswith(self.name)


_TOPIC = frozenset({ResourceKind.TOPIC})
_NAMED = frozenset({ResourceKind.TOPIC, ResourceKind.GROUP})


def _split(topic: str) -> tuple[str, str]:
    """Return how a topic's name is derived from a group's, and that name; or none, and all."""
    for derivation in (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX):
        if topic.startswith(derivation):
            return derivation, topic.removeprefix(derivation)
    return "", topic


class Namespaces:
    """The namespaces of a policy, by their holders.

    Args:
        document: The policy.
    """

    def __init__(self, document: PolicyDocument) -> None:
        self._by_holder = {
            holder: Namespace(namespace.name)
            for namespace in document.namespaces
            for holder in namespace.to
        }
        self._roles: dict[str, list[str]] = {}
        for role, members in document.roles.items():
            for member in members:
                self._roles.setdefault(member, []).append(ROLE_PREFIX + role)

    def __bool__(self) -> bool:
        return bool(self._by_holder)

    def of(self, principal: str, roles: Sequence[str] = ()) -> tuple[Namespace, ...]:
        """Return the namespaces of *principal*, sorted; nothing is inside of several.

        One that names the principal counts alone; otherwise, those of its roles.

        Args:
            principal: Its name.
            roles: Roles that its credentials give it, each as ``role:NAME``.
        """
        if not self._by_holder:
            return ()
        own = self._by_holder.get(principal)
        if own is not None:
            return (own,)
        holders = (*self._roles.get(principal, ()), *roles)
        found = {self._by_holder[holder] for holder in holders if holder in self._by_holder}
        return tuple(sorted(found, key=lambda namespace: namespace.name))
