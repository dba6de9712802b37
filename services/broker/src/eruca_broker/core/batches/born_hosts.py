"""Make room for an IPv6 peer's address in records laid out for an IPv4 address.

A client that encodes records cannot know over which network its connection goes, because a host
name may resolve to either. It leaves room for an IPv4 address, which is almost always right. If the
broker sees an IPv6 peer, it makes each record 12 bytes longer and sets the flag, as RocketMQ does.
In the other direction nothing moves: RocketMQ's own tools read an IPv4 address that is mapped into
an IPv6 address.

Source: RocketMQ 5.3, ``MessageSysFlag.BORNHOST_V6_FLAG``, ``MessageDecoder``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from eruca.contract.records import IPV4_HOST_SIZE, IPV6_HOST_SIZE, Host, RecordLayout, SysFlag
from eruca_broker.core.batches.batch import Batch, read_batch

_ROOM: Final = IPV6_HOST_SIZE - IPV4_HOST_SIZE  # bytes
_MAPPED: Final = bytes(10) + b"\xff\xff"  # prefix of an IPv4 address in an IPv6 address


def with_room_for(batch: Batch, born_host: Host) -> tuple[Batch, Host]:
    """Return *batch* and *born_host* in forms that fit each other.

    The returned batch is a copy if its records had to become longer.
    """
    has_v6_room = batch.layout.born_host_size == IPV6_HOST_SIZE
    if born_host.is_v6 and not has_v6_room:
        return _widened(batch), born_host
    if has_v6_room and not born_host.is_v6 and born_host.port:
        return batch, Host(_MAPPED + born_host.address, born_host.port)
    return batch, born_host


def _widened(batch: Batch) -> Batch:
    """Return a copy of a verified batch with room for IPv6 addresses in place of IPv4 addresses."""
    starts = np.array(batch.starts)
    sizes = np.array(batch.sizes) + _ROOM
    places = np.repeat(starts + RecordLayout.BORN_HOST, _ROOM)
    wide = np.insert(np.frombuffer(batch.records, np.uint8), places, 0)
    starts = starts + _ROOM * np.arange(batch.count)
    wide[starts[:, None] + np.arange(4)] = sizes.astype(">i4").view(np.uint8).reshape(-1, 4)
    wide[starts + RecordLayout.SYS_FLAG + 3] |= np.uint8(SysFlag.BORN_HOST_V6)
    return read_batch(batch.topic, batch.queue_id, bytearray(wide), batch.count)
