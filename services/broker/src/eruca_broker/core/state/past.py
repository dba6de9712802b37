"""Reduce events to what concerns one group or one transaction.

A fold over the reduced events gives that group or transaction the same state as a fold over all of
them. It costs little. Most records need not even be decoded: the body of an event about a group has
the group's name as a JSON string. A snapshot of all groups becomes one of this group. Topics stay:
the deletion of a topic, and its creation again, end the positions of all groups in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec.structs import replace

from eruca.contract.hashing import tags_code
from eruca.contract.transaction_events import TRANSACTION_EVENTS
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.events import Event
from eruca_broker.core.state.group_events import MembershipBegan
from eruca_broker.core.state.snapshots import SNAPSHOT_TAG, StateSnapshot
from eruca_broker.core.state.timers_events import DeadLettersRedriven, TimersCancelled, TimersFired
from eruca_broker.core.state.topic_events import TopicDeleted, TopicPut


@dataclass(frozen=True, slots=True)
class About:
    """The part of events that the state of one group or one transaction depends on.

    Attributes:
        needle: Bytes that every event about it contains, those of *tags_codes* aside.
        tags_codes: Codes of the tags of further events.
        part: Returns the part of an event that concerns it; None: there is none.
    """

    needle: bytes
    tags_codes: frozenset[int]
    part: Callable[[Event], Event | None]

    def may_concern(self, record: bytes, code: int) -> bool:
        """Return False if the control record with this code of its tag certainly does not."""
        return code in self.tags_codes or self.needle in record


def about_group(group: str) -> About:
    """Return what concerns a group."""
    tags = (SNAPSHOT_TAG, *(str(one.__struct_config__.tag) for one in (TopicPut, TopicDeleted)))
    return About(
        msgspec.json.encode(group),
        frozenset(map(tags_code, tags)),
        partial(_of_group, group=group),
    )


def about_transaction(transaction_id: str) -> About:
    """Return what concerns a transaction."""
    return About(
        msgspec.json.encode(transaction_id),
        frozenset({tags_code(SNAPSHOT_TAG)}),
        partial(_of_transaction, transaction_id=transaction_id),
    )


def _of_group(event: Event, group: str) -> Event | None:
    """Return the part of *event* that the state of *group* depends on; None: there is none."""
    if isinstance(event, StateSnapshot):
        return replace(
            event,
            queue_ends=[],
            groups=[one for one in event.groups if one.group == group],
            group_settings=[one for one in event.group_settings if one.group == group],
            subscriptions=[one for one in event.subscriptions if one.group == group],
            group_pieces=[one for one in event.group_pieces if one.group == group],
            timers=[],
            redriven=[],
            leases=[one for one in event.leases if one.group == group],
            transactions=[],
            epochs=[],
        )
    if isinstance(event, TopicPut | TopicDeleted):
        return event
    if isinstance(
        event,
        (
            MembershipBegan,
            EpochBegan,
            DeadLettersRedriven,
            TimersFired,
            TimersCancelled,
            *TRANSACTION_EVENTS,
        ),
    ):
        return None
    return event if event.group == group else None  # all others have one


def _of_transaction(event: Event, transaction_id: str) -> Event | None:
    """Return the part of *event* that the state of a transaction depends on; None: none."""
    if isinstance(event, StateSnapshot):
        return replace(
            event,
            topics=[],
            queue_ends=[],
            groups=[],
            group_settings=[],
            subscriptions=[],
            group_pieces=[],
            timers=[],
            redriven=[],
            leases=[],
            transactions=[
                one for one in event.transactions if one.transaction_id == transaction_id
            ],
            epochs=[],
        )
    is_its_own = isinstance(event, TRANSACTION_EVENTS) and event.transaction_id == transaction_id
    return event if is_its_own else None
