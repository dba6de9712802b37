"""Keys of records that are visible and not in the key index yet.

Adding keys to the index in bulk costs far less than record by record. So a batch's keys are kept,
as they were read from it, until there are enough. Their order is that of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca.core.messages.record_columns import Int64Array
from eruca_broker.core.properties.found import KEY_DTYPE, KEY_SIZE


class KeyEntries(NamedTuple):
    """Entries for the key index: a row for each key, in log order."""

    hashes: NDArray[np.int32]  # of ``topic#key``
    log_offsets: Int64Array  # of its record
    timestamps: Int64Array  # … store time in ms


class KeyBacklog:
    """The keys of batches, in log order.

    Attributes:
        count: Number of records that have these keys.
        size: Bytes of the keys.
    """

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._keys: list[bytes] = []  # of each batch, as rows of KEY_DTYPE: where its records start
        self._log_offsets: list[int] = []  # log offset of each batch
        self._timestamps: list[int] = []  # … and its store time in ms

    def add(self, count: int, keys: bytes, log_offset: int, timestamp: int) -> None:
        """Add the keys of a batch of *count* records."""
        offsets = self._log_offsets
        assert not offsets or offsets[-1] < log_offset, "batches come in log order, each once"
        assert not len(keys) % KEY_SIZE
        self.count += count
        self.size += len(keys)
        self._keys.append(keys)
        offsets.append(log_offset)
        self._timestamps.append(timestamp)

    @property
    def last_offset(self) -> int:
        """Log offset of the last batch; -1 without one."""
        return self._log_offsets[-1] if self._log_offsets else -1

    def newest_first(self) -> Iterator[int]:
        """Yield the log offsets of the records that have keys, descending."""
        for keys, log_offset in zip(reversed(self._keys), reversed(self._log_offsets), strict=True):
            starts = np.unique(np.frombuffer(keys, KEY_DTYPE)["record"])
            yield from (starts[::-1].astype(np.int64) + log_offset).tolist()

    def entries(self) -> KeyEntries:
        """Return the entries for all keys."""
        assert len(self._keys) == len(self._log_offsets) == len(self._timestamps)
        keys = np.frombuffer(b"".join(self._keys), KEY_DTYPE)
        counts = np.fromiter(map(len, self._keys), np.int64, len(self._keys)) // KEY_SIZE
        return KeyEntries(
            keys["hash"].astype(np.int32),
            np.repeat(np.array(self._log_offsets, np.int64), counts) + keys["record"],
            np.repeat(np.array(self._timestamps, np.int64), counts),
        )

    def clear(self) -> None:
        """Drop all keys, because they are in the index now."""
        self.count = self.size = 0
        self._keys.clear()
        self._log_offsets.clear()
        self._timestamps.clear()
