"""Side objects: what the manifest says of a segment is so, whatever clock its records saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.contract.records import Host, Record, encode_blank, encode_record
from eruca_broker.core.log import recovery
from eruca_broker.store.tier.sides import Side, side_of

HOST = Host.parse("10.1.2.3", 10_911)
SIZE = 2_000  # bytes of the segment


def segment_with(times: list[int]) -> bytes:
    written = b""
    for number, at in enumerate(times):
        record = Record(
            topic="orders",
            body=b"",
            queue_id=0,
            queue_offset=number,
            log_offset=len(written),
            store_timestamp=at,
            born_host=HOST,
            store_host=HOST,
        )
        written += encode_record(record)
    return (written + encode_blank(SIZE - len(written))).ljust(SIZE, b"\0")


@pytest.mark.parametrize("count", [1, 2, 100], ids=["one a step", "two a step", "one step"])
@pytest.mark.parametrize(
    "times", [[5, 6, 9], [5, 9, 9, 3, 4], [7, 9, 2, 8, 8], [9, 8, 1], [0, 4, 2, 1]]
)
def test_the_times_of_a_segment_are_the_least_and_the_greatest(
    tmp_path: Path, times: list[int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ's clock may have been set back within the segment."""
    monkeypatch.setattr(recovery, "RECORDS_PER_STEP", count)
    path = tmp_path / "segment"
    path.write_bytes(segment_with(times))
    found: list[Side] = []

    for _ in side_of(
        path,
        0,
        tmp_path / "side" / "body",
        before={},
        is_current=lambda _queue, _run: True,
        chunk_size=1 << 20,
        done=found.append,
    ):
        pass

    [side] = found
    assert (side.first_ms, side.last_ms) == (min(times), max(times))
