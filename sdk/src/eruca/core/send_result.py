"""Where a message has been stored: what a send returns.

Source: RocketMQ 5.3, ``SendResult``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from eruca.contract.message_ids import encode_offset_id
from eruca.contract.records import Host
from eruca.core.message_queue import MessageQueue


class SendResult(Struct, frozen=True, gc=False):
    """Where a message has been stored, and how durably."""

    message_id: str  # the unique id; a retry or a copy of the message keeps it
    queue: MessageQueue
    queue_offset: int  # index in the queue
    log_offset: int  # bytes from the start of the broker's log
    store_timestamp: int  # ms since the epoch, the broker's clock
    durability: str  # "flushed": on disk. "written": with the kernel, survives kill -9
    store_host: Host  # the broker, as its records name it

    @property
    def offset_message_id(self) -> str:
        """The id that says where it is stored."""
        return encode_offset_id(self.store_host, self.log_offset)

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the broker's clock."""
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self.store_timestamp)
