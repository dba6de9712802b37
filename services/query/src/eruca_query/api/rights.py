"""The rights on messages that are found by an id: they follow from the messages' topics.

To a caller without any right on its topic, a message does not exist. The service reads brokers with
its own credentials, and decides here by the same rules as they do. So an answer contains nothing
that the caller could not have read there.
"""

from __future__ import annotations

from eruca.contract.access import Right
from eruca.contract.errors import MessageNotFoundError
from eruca.contract.names import is_system_topic
from eruca.contract.queries import MessageFound, Timeline
from eruca_access.needs import on_group, on_topic
from eruca_chassis.admission.gate import Access


def visible(access: Access, found: MessageFound, message_id: str) -> MessageFound:
    """Return what the caller may see of the messages with an id.

    Raises:
        MessageNotFoundError: It has no right on the message's topic.
        ForbiddenError: It has a right there, but not the one to query.
    """
    _require(access, [found.message.topic], message_id)
    others = [place for place in found.also_stored if _may_query(access, place.topic)]
    return found.model_copy(update={"also_stored": others})


def visible_timeline(access: Access, timeline: Timeline, message_id: str) -> Timeline:
    """Return what the caller may see of a message's life.

    System topics are part of the life of the message itself.

    Raises:
        MessageNotFoundError: It has no right on any topic of the message.
        ForbiddenError: It has a right there, but not the one to query.
    """
    topics = [place.topic for place in timeline.places]
    _require(access, [t for t in topics if not is_system_topic(t)] or topics, message_id)
    allowed = {t for t in topics if is_system_topic(t) or _may_query(access, t)} | {None}
    return timeline.model_copy(
        update={
            "places": [place for place in timeline.places if place.topic in allowed],
            "events": [
                event
                for event in timeline.events
                if event.topic in allowed and _may_see(access, event.detail.get("group"))
            ],
            "groups": [group for group in timeline.groups if access.may(on_group(group.group))],
        }
    )


def _require(access: Access, topics: list[str], message_id: str) -> None:
    """Refuse unless the caller may query one of *topics*."""
    if any(_may_query(access, topic) for topic in topics):
        return
    for topic in topics:
        if access.may(on_topic(topic)):
            access.require(on_topic(topic, Right.QUERY))
    raise MessageNotFoundError(f"no broker has a message with the id {message_id!r}")


def _may_see(access: Access, group: object) -> bool:
    """Return whether the caller may know of the *group* of an event; None: it has none."""
    return group is None or access.may(on_group(str(group)))


def _may_query(access: Access, topic: str) -> bool:
    return access.may(on_topic(topic, Right.QUERY))
