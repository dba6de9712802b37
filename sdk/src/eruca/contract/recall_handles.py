"""Recall handles: which waiting message a recall means, on which broker and for which topic.

A message's id is unique within its topic at best: clients choose ids and idempotency keys. So a
recall names the broker, the topic, the delivery time and the id. A handle is all four in one text.

Source: RocketMQ 5.3, ``RecallMessageHandle.HandleV1``, whose form this is. There the time is a
millisecond later than the delivery time.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

RECALL_HANDLE_SIZE_MAX: Final = 2_048  # characters: the longest topic, broker name and id fit

_VERSION: Final = "v1"


class MalformedRecallHandleError(ValueError):
    """The text is no recall handle."""


class RecallHandle(NamedTuple):
    """The four things that a recall handle names."""

    topic: str  # of the delivery
    broker_name: str
    deliver_at_ms: int  # since the epoch
    message_id: str  # the unique id

    def is_of(self, topic: str, deliver_at_ms: int) -> bool:
        """Tell whether it names this topic and delivery time."""
        return (self.topic, self.deliver_at_ms) == (topic, deliver_at_ms)


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the handle as clients see it: letters, digits, - and _."""
    text = " ".join(
        (
            _VERSION,
            handle.topic,
            handle.broker_name,
            str(handle.deliver_at_ms),
            handle.message_id,  # the last one: it may hold spaces
        )
    )
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_recall_handle(text: str) -> RecallHandle:
    """Return what a recall handle names.

    Raises:
        MalformedRecallHandleError: *text* is no handle, or not all of one.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        parts = urlsafe_b64decode(padded.encode("ascii")).decode().split(" ", 4)
    except (UnicodeError, binascii.Error):
        parts = []
    if len(parts) == 5 and parts[0] == _VERSION and parts[3].isdecimal() and parts[4]:
        handle = RecallHandle(parts[1], parts[2], int(parts[3]), parts[4])
        if encode_recall_handle(handle) == text.rstrip("="):
            return handle
    raise MalformedRecallHandleError(f"expected a recall handle, found {text[:80]!r}")
