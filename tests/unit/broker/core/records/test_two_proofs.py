"""The proof of records by columns, and the compiled one: they accept the same records."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eruca.contract.records import Record
from eruca.core.messages.record_columns import read_columns
from eruca.core.messages.record_proof import proved_rows
from eruca_broker.core.records import stored_proof
from support.laid_segments import LOGS, laid

HEAD = 8  # bytes of size and magic, which must be valid for columns to be read


@given(
    LOGS,
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=6),
)
@example([(Record("orders", b"body"), True)], [(at - 20, 0) for at in range(5)])
@settings(max_examples=200)
def test_both_accept_the_same_records(
    records: list[tuple[Record, bool]], changes: list[tuple[int, int]]
) -> None:
    segment, encoded = laid(records, 0)
    sizes = np.array([len(raw) for raw in encoded], np.int64)
    starts = sizes.cumsum() - sizes
    changed = bytearray(segment[: int(sizes.sum())])
    for place, value in changes:
        row = place % len(encoded)
        at = HEAD + (place // len(encoded)) % (int(sizes[row]) - HEAD)
        changed[int(starts[row]) + at] = value

    columns = read_columns(bytes(changed), starts)

    is_at_its_place = (columns.log_offsets == starts) & (
        (columns.queue_ids | columns.queue_offsets) >= 0
    )
    compiled = stored_proof.proved_rows(bytes(changed), starts, sizes) & is_at_its_place
    assert proved_rows(columns, 0).tolist() == compiled.tolist()
