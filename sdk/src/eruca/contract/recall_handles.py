"""Recall handles: identify a scheduled message, its broker and its topic in one text.

A message id is at best unique within its topic, because clients choose ids and idempotency keys. So
a handle holds the broker, the topic, the delivery time and the id.

Source: RocketMQ 5.3, ``RecallMessageHandle.HandleV1``, which has the same form. RocketMQ's time is
one millisecond after the delivery time.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

RECALL_HANDLE_SIZE_MAX: Final = 2_048  # characters: the longest topic, broker name and id fit

_VERSION: Final = "v1"


class MalformedRecallHandleError(ValueError):
    """The text is not a recall handle."""


class RecallHandle(NamedTuple):
    """The parts of a recall handle."""

    topic: str  # of the delivery
    broker_name: str
    deliver_at_ms: int  # since the epoch
    message_id: str  # the unique id

    def is_of(self, topic: str, deliver_at_ms: int) -> bool:
        """Return whether the handle names this topic and delivery time."""
        return (self.topic, self.deliver_at_ms) == (topic, deliver_at_ms)


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the handle as clients see it: letters, digits, - and _."""
    text = " ".join(
        (
            _VERSION,
            handle.topic,
            handle.broker_name,
            str(handle.deliver_at_ms),
            handle.message_id,  # last, because it may contain spaces
        )
    )
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_recall_handle(text: str) -> RecallHandle:
    """Return the parts of a recall handle.

    Raises:
        MalformedRecallHandleError: *text* is not a whole handle.
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
