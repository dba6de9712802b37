"""Encode records that the broker itself makes: control records and op messages.

Each transaction needs three of them. All records of one queue differ only in their body, their
properties and their time, so the rest is prepared once. The result is that of
:func:`eruca.contract.records.encode_unstamped`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from isal import isal_zlib

from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.records import (
    BODY_CRC_MASK,
    CHECKSUM_ROOM,
    MAGIC_V1,
    V1_TOPIC_SIZE_MAX,
    Host,
    SysFlag,
    layout_of,
)

_CHECKSUM_ROOM: Final = CHECKSUM_ROOM.encode()
_crc32 = isal_zlib.crc32


class OwnRecords:
    """The records of one queue that this broker makes.

    Args:
        topic: Their topic.
        queue_id: Their queue.
        host: The broker, which is also their producer.
    """

    def __init__(self, topic: str, queue_id: int, host: Host) -> None:
        name = topic.encode()
        assert len(name) <= V1_TOPIC_SIZE_MAX, "system topics have short names"
        self._host = host
        self._queue_id = queue_id
        self._topic = bytes((len(name),)) + name
        flags = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
        self._sys_flag = int(flags) if host.is_v6 else 0
        self._layout = layout_of(self._sys_flag)

    def encoded(self, body: bytes, properties: bytes, now_ms: int) -> bytes:
        """Return a record; offsets, store time and checksum are not stamped yet.

        Args:
            body: Its body.
            properties: Their stored text; it ends with a separator.
            now_ms: Its born time, in ms since the epoch.
        """
        layout, topic, host = self._layout, self._topic, self._host
        properties += _CHECKSUM_ROOM
        assert len(properties) <= PROPERTIES_SIZE_MAX
        header = layout.header.pack(
            layout.body + len(body) + len(topic) + 2 + len(properties),
            MAGIC_V1,
            _crc32(body) & BODY_CRC_MASK,
            self._queue_id,
            0,
            0,
            0,
            self._sys_flag,
            now_ms,
            host.address,
            host.port,
            0,
            host.address,
            host.port,
            0,
            0,
            len(body),
        )
        return b"".join((header, body, topic, len(properties).to_bytes(2, "big"), properties))


own_records: Final = lru_cache(maxsize=64)(OwnRecords)
"""Return the records of a queue, prepared."""
