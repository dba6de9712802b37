"""Offset message ids, which name the place of a message, for many messages at once.

All messages that a broker stores during one run have the same store host. So the ids differ only in
the half that holds the log offset.

Source: RocketMQ 5.3, ``MessageDecoder.createMessageId``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eruca.rows.arrow_schema import STRING
from eruca.rows.record_fields import ArrowArray, RecordFields, gathered

_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
_OFFSET_DIGITS: Final = 16


def offset_ids(fields: RecordFields) -> ArrowArray:
    """Return the offset message id of each record: string."""
    host_size = int(fields.store_host_sizes[0])
    if (fields.store_host_sizes == host_size).all():
        hosts = gathered(fields.buffer, fields.store_host_starts, host_size)
        if (hosts == hosts[0]).all():
            return _of_one_host(hosts[0].tobytes().hex().upper().encode(), fields)
    hosts_and_offsets = zip(_hosts(fields), _offset_digits(fields), strict=True)
    return pa.array([host + digits.tobytes().decode() for host, digits in hosts_and_offsets])


def _of_one_host(host: bytes, fields: RecordFields) -> ArrowArray:
    size = len(host) + _OFFSET_DIGITS
    ids = np.empty((fields.count, size), np.uint8)
    ids[:, : len(host)] = np.frombuffer(host, np.uint8)
    ids[:, len(host) :] = _offset_digits(fields)
    offsets = np.arange(0, size * fields.count + 1, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(ids)]
    return pa.Array.from_buffers(STRING, fields.count, buffers)


def _offset_digits(fields: RecordFields) -> NDArray[np.uint8]:
    octets = fields.log_offsets.astype(">i8").view(np.uint8)
    return _HEX.take(octets).view(np.uint8).reshape(fields.count, _OFFSET_DIGITS)


def _hosts(fields: RecordFields) -> list[str]:
    view = memoryview(fields.buffer)
    ends = fields.store_host_starts + fields.store_host_sizes
    return [
        view[start:end].hex().upper()
        for start, end in zip(fields.store_host_starts.tolist(), ends.tolist(), strict=True)
    ]
