"""Answers to pulls, as a broker gives them."""

from __future__ import annotations

from eruca.contract.wire import PullStatus, encode_pull_head


def pull_of(records: list[bytes], status: PullStatus = PullStatus.FOUND) -> bytes:
    """Return the answer to a pull that brought *records* of a queue from 2 up to 11."""
    sizes = b"".join(len(raw).to_bytes(4, "big") for raw in records)
    records_size = sum(map(len, records))
    head = encode_pull_head(
        status, next_offset=9, min_offset=2, max_offset=11, sizes=sizes, records_size=records_size
    )
    return head + b"".join(records)
