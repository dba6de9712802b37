"""Handles: the text by which a client acknowledges a message that it has received.

A handle is opaque to clients: base64url of a JSON array and its CRC-32. It names the broker that
made it, the lease (group, topic, queue, offset, attempt) and the fence. The fence decides: only the
broker's state says whether the handle is still valid. After an unclean election the log has other
records at offsets that were used before, so the fence has its epoch with it (rule 12). The checksum
distinguishes a handle that was truncated or mistyped from a stale one.

Source: RocketMQ 5.3, ``ExtraInfoUtil``. Its handles contain a time and no fence.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from zlib import crc32

import msgspec

_CHECKSUM_SIZE: Final = 4


class Handle(msgspec.Struct, frozen=True, array_like=True):
    """The content of a handle."""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    offset: int
    attempt: int
    fence: int  # log offset of the event that made the lease
    epoch: int = 0  # of that event: after an unclean election another may be at this offset


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Handle)


class MalformedHandleError(ValueError):
    """The text is not a handle of any broker."""


def encode_handle(handle: Handle) -> str:
    """Return the handle as clients see it: letters, digits, - and _."""
    content = _ENCODER.encode(handle)
    checked = crc32(content).to_bytes(_CHECKSUM_SIZE, "big") + content
    return urlsafe_b64encode(checked).rstrip(b"=").decode()


def decode_handle(text: str) -> Handle:
    """Return the content of a handle.

    Raises:
        MalformedHandleError: The text is not a handle, or is incomplete.
    """
    try:
        checked = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        checksum, content = checked[:_CHECKSUM_SIZE], checked[_CHECKSUM_SIZE:]
        handle = _DECODER.decode(content)
    except (ValueError, msgspec.MsgspecError) as error:
        raise MalformedHandleError("is not a handle of a broker") from error
    if crc32(content).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
        raise MalformedHandleError("is a handle that was truncated or changed")
    return handle
