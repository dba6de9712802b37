"""Room for an IPv6 peer's address in records that were laid out for an IPv4 one.

A client that makes records does not know over which network its connection goes: a name may lead to
either. It leaves room for an IPv4 address, as nearly all of them need. Where the broker sees an
IPv6 peer, the records are made 12 bytes longer each, as RocketMQ lays them out then, with the flag
that says so. The other way round nothing has to move: RocketMQ's own tools read an IPv4 address
that is mapped into an IPv6 one.

Source: RocketMQ 5.3, ``MessageSysFlag.BORNHOST_V6_FLAG``, ``MessageDecoder``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from eruca.contract.records import IPV4_HOST_SIZE, IPV6_HOST_SIZE, Host, RecordLayout, SysFlag
from eruca_broker.core.batches.batch import Batch, read_batch

_ROOM: Final = IPV6_HOST_SIZE - IPV4_HOST_SIZE  # bytes
_MAPPED: Final = bytes(10) + b"\xff\xff"  # what precedes an IPv4 address in an IPv6 one


def with_room_for(batch: Batch, born_host: Host) -> tuple[Batch, Host]:
    """Return *batch* and *born_host* in forms that fit each other.

    The batch is a copy where its records have to become longer.
    """
    has_v6_room = batch.layout.born_host_size == IPV6_HOST_SIZE
    if born_host.is_v6 and not has_v6_room:
        return _widened(batch), born_host
    if has_v6_room and not born_host.is_v6 and born_host.port:
        return batch, Host(_MAPPED + born_host.address, born_host.port)
    return batch, born_host


def _widened(batch: Batch) -> Batch:
    """Return a checked batch with room for IPv6 addresses where its records have IPv4 ones."""
    starts = np.array(batch.starts)
    sizes = np.array(batch.sizes) + _ROOM
    places = np.repeat(starts + RecordLayout.BORN_HOST, _ROOM)
    wide = np.insert(np.frombuffer(batch.records, np.uint8), places, 0)
    starts = starts + _ROOM * np.arange(batch.count)
    wide[starts[:, None] + np.arange(4)] = sizes.astype(">i4").view(np.uint8).reshape(-1, 4)
    wide[starts + RecordLayout.SYS_FLAG + 3] |= np.uint8(SysFlag.BORN_HOST_V6)
    return read_batch(batch.topic, batch.queue_id, bytearray(wide), batch.count)
