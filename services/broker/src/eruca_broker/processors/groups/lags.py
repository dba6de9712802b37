"""Measure the lag of groups by topic, and their lost messages, for metrics and for the log.

Thousands of groups may have positions in thousands of queues. So they are examined in several turns
of the event loop, and the output is bounded to the groups and topics with the largest lags.

The **lost** messages of a group were deleted by retention before the group read them. They lie
between its position and its queue's beginning. They are logged once, when they are deleted, and
measured until the group moves on.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.core.records.times import rfc3339
from eruca_broker.processors.pacing import Pace
from eruca_broker.processors.standings import Standing, queues_of, standing
from eruca_broker.store.message_store import MessageStore

LAGS_MAX: Final = 1_000  # of a group in a topic that are logged together; a line of text each
LOSSES_LOGGED_MAX: Final = 20  # lines of the log for one deletion

_log = structlog.get_logger()


class TopicLag(NamedTuple):
    """The lag of a group in the queues of a topic."""

    group: str
    topic: str
    lag: int  # messages
    lost: int  # messages


class Unread(NamedTuple):
    """The unread messages of a group in a topic, some of which are about to be deleted."""

    lost: int  # messages, before
    stored_at_ms: int | None  # store time of the oldest; None: it is damaged, or one of many


UnreadByTopic: TypeAlias = Mapping[str, Mapping[str, Unread]]
"""By group, and then by topic."""


class GroupLags:
    """The lags of the groups of one store.

    Attributes:
        latest: The last measurement, largest lags first.
        left_out: The number of further lags.
    """

    def __init__(self, store: MessageStore) -> None:
        self.latest: list[TopicLag] = []
        self.left_out = 0
        self._store = store

    async def measure(self) -> None:
        """Measure all groups, in turns with other work."""
        found: list[TopicLag] = []
        pace = Pace()
        for name in list(self._store.state.groups):
            by_topic: dict[str, TopicLag] = {}
            for topic, _, stands in self._standings(name):
                await pace.step()
                known = by_topic.get(topic, TopicLag(name, topic, 0, 0))
                by_topic[topic] = TopicLag(
                    name, topic, known.lag + (stands.lag or 0), known.lost + stands.lost
                )
            found += by_topic.values()
        self.latest = heapq.nlargest(LAGS_MAX, found, key=_behind)
        self.left_out = len(found) - len(self.latest)

    async def unread_before(self, log_offset: int) -> UnreadByTopic:
        """Return the groups that would lose messages if the log began at *log_offset*, by topic."""
        unread: dict[str, dict[str, Unread]] = {}
        count = 0
        pace = Pace()
        for name in list(self._store.state.groups):
            lost: Counter[str] = Counter()
            oldest: dict[str, tuple[int, int, int]] = {}  # log offset, queue id, queue offset
            for topic, queue_id, stands in self._standings(name):
                lost[topic] += stands.lost
                if stands.lag:
                    queue_offset = stands.end - stands.lag
                    with suppress(UnavailableError):  # requests that read it get the error
                        lies = self._lies_here_at(topic, queue_id, queue_offset)
                        if lies is not None and lies < log_offset:
                            place = (lies, queue_id, queue_offset)
                            oldest[topic] = min(oldest.get(topic, place), place)
                await pace.step()  # the topic may be deleted after that
            for topic, (_, queue_id, queue_offset) in oldest.items():
                count += 1
                is_logged = count <= LOSSES_LOGGED_MAX
                find = partial(self._store.places.stored_at_ms, topic, queue_id, queue_offset)
                stored_at_ms: int | None = None
                if is_logged:
                    with suppress(UnavailableError):  # nothing is kept for the sake of a log line
                        stored_at_ms = await self._store.cold.read("lags", find)
                unread.setdefault(name, {})[topic] = Unread(lost[topic], stored_at_ms)
        return unread

    async def tell_lost(self, unread: UnreadByTopic) -> None:
        """Log the groups that have lost messages since :meth:`unread_before` returned *unread*."""
        found = 0  # groups and topics that have lost messages
        pace = Pace()
        for name, by_topic in unread.items():
            lost: Counter[str] = Counter()
            for topic, _, stands in self._standings(name):
                await pace.step()
                lost[topic] += stands.lost
            for topic, before in by_topic.items():
                count = lost[topic] - before.lost
                if count > 0 and found < LOSSES_LOGGED_MAX:
                    _log.warning(
                        "retention has deleted messages that a group had not read",
                        group=name,
                        topic=topic,
                        messages=count,
                        oldest_stored_at=_text(before.stored_at_ms),
                    )
                found += count > 0
        if found > LOSSES_LOGGED_MAX:
            _log.warning(
                "retention has deleted messages that more groups had not read",
                count=found - LOSSES_LOGGED_MAX,
            )

    def _lies_here_at(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return a message's log offset; None: only the tier has it, so retention does not."""
        queues = self._store.queues
        if queue_offset < queues.local_range(topic, queue_id)[0]:
            return None
        return self._store.places.log_offset_of(topic, queue_id, queue_offset)

    def _standings(self, name: str) -> Iterator[tuple[str, int, Standing]]:
        """Yield topic, queue id and position of the group, for each queue that it has begun."""
        group = self._store.state.groups.get(name)
        for queue in [] if group is None else queues_of(group):
            assert group is not None
            try:
                stands = standing(self._store, group, queue)
            except UnavailableError:  # requests that read it get the error
                continue
            if stands is not None and stands.position is not None:
                yield *queue, stands


def _behind(lag: TopicLag) -> int:
    return lag.lag + lag.lost


def _text(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)
