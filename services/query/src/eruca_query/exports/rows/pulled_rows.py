"""The rows of a pulled block: consecutive messages of one queue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eruca.contract.records import DamagedRecordError
from eruca.rows.message_batches import Rows
from eruca.rows.record_fields import Int64Array, read_fields
from eruca_query.exports.rows.blocks import Block


def rows_of(block: Block, topic: str, columns: Sequence[str]) -> Rows:
    """Return the messages of *block* with *columns*, none of which is computed yet.

    Raises:
        DamagedRecordError: The bytes are not the expected records.
    """
    fields = read_fields(block.records, block.sizes)
    _check_offsets(fields.queue_offsets, block.from_offset)
    return Rows(topic, block.broker_name, fields, columns)


def _check_offsets(offsets: Int64Array, first: int) -> None:
    wrong = np.flatnonzero(offsets != np.arange(first, first + len(offsets)))
    if len(wrong):
        row = int(wrong[0])
        raise DamagedRecordError(f"expected queue offset {first + row}, found {int(offsets[row])}")
