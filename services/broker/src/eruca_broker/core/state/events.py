"""Control records: every change of the broker's state, as stored in the log.

A control record is an ordinary message of the system topic ``ERUCA_SYS_EVENTS``, queue 0. Its tag
names the kind of event, and its body is the event in JSON, so any tool can read the log. The
broker's state is a fold over control records (:mod:`eruca_broker.core.state.state`) and over
nothing else.

The kinds are defined by subject, in ``*_events.py`` and ``snapshots.py``. Those of transactions are
in the contract, because others read them too. This module contains what they have in common, and
their union. A new kind must join the union, or it cannot be read.
"""

from __future__ import annotations

from functools import cache
from typing import Final, TypeAlias

import msgspec

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Host
from eruca.contract.transaction_events import TRANSACTION_EVENTS, TransactionEvent
from eruca_broker.core.records.own_records import own_records
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.group_events import (
    CommittedOffset,
    GroupEvent,
    MembershipBegan,
    OffsetsCommitted,
)
from eruca_broker.core.state.lease_events import LeaseEvent
from eruca_broker.core.state.snapshots import SNAPSHOT_TAG, StateSnapshot
from eruca_broker.core.state.timers_events import TimerEvent
from eruca_broker.core.state.topic_events import TopicDeleted, TopicPut

__all__ = (
    "EVENTS_QUEUE_ID",
    "SNAPSHOT_TAG",
    "CommittedOffset",
    "EpochBegan",
    "Event",
    "OffsetsCommitted",
    "StateSnapshot",
    "TopicDeleted",
    "TopicPut",
    "UnknownEventError",
    "decode_event",
    "encode_event",
    "event_tag",
)

EVENTS_QUEUE_ID: Final = 0

TopicEvent: TypeAlias = TopicPut | TopicDeleted
Event: TypeAlias = (
    TopicEvent
    | EpochBegan
    | GroupEvent
    | LeaseEvent
    | MembershipBegan
    | TimerEvent
    | TransactionEvent
    | StateSnapshot
)

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


class UnknownEventError(ValueError):
    """A control record that this version cannot read: written by a newer one, or damaged."""


def event_tag(event: Event) -> str:
    """Return the tag of the event's control record."""
    return str(event.__struct_config__.tag)


def encode_event(event: Event, *, now_ms: int, host: Host) -> bytes:
    """Return the control record of *event*; offsets, store time and checksum are not stamped yet.

    Events of a transaction have the transaction's id as their unique id, so that the key index
    finds them.
    """
    properties = _tag_property(event.__class__)
    if isinstance(event, TRANSACTION_EVENTS):
        properties += _id_property(event.transaction_id)
    records = own_records(EVENTS_TOPIC, EVENTS_QUEUE_ID, host)
    return records.encoded(_ENCODER.encode(event), properties, now_ms)


@cache
def _tag_property(kind: type[Event]) -> bytes:
    return encode_properties({TAGS: str(kind.__struct_config__.tag)}).encode()


def _id_property(transaction_id: str) -> bytes:
    return encode_properties({UNIQ_KEY: transaction_id}).encode("utf-8", "surrogatepass")


def decode_event(body: bytes) -> Event:
    """Return the event of a control record's body.

    Raises:
        UnknownEventError: The body is not an event that this version knows.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UnknownEventError(
            f"unreadable control record, {body[:200]!r}: {error}. A newer broker has "
            "probably written it: start that version, or a newer one, on this store"
        ) from error
