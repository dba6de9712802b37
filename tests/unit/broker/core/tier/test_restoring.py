"""The choice of segments to restore: those that messages need, and no others."""

from __future__ import annotations

import pytest

from eruca_broker.core.tier.manifests import ExpiredSegment, Manifest, TierSegment
from eruca_broker.core.tier.restoring import extended, lost_of

SIZE = 100


def segment(number: int) -> TierSegment:
    return TierSegment(
        base=number * SIZE,
        end=(number + 1) * SIZE,
        epoch=1,
        records=1,
        first_ms=number,
        last_ms=number,
        chunk_size=SIZE,
        sha256="",
        head_size=1,
        head_sha256="",
        side_size=1,
        upload=f"{number}",
    )


@pytest.fixture
def manifest() -> Manifest:
    """Return one with segments 4 to 9, and 3 as an expired one."""
    return Manifest(
        format=1,
        number=1,
        cluster="eruca",
        broker_name="broker-a",
        log_id="log",
        epoch=1,
        written_at_ms=0,
        segments=[segment(number) for number in range(4, 10)],
        condemned=[],
        abandoned=[],
        expired=[ExpiredSegment(segment=segment(3), since_ms=0, is_abandoned=False)],
    )


@pytest.mark.parametrize(
    ("waiting", "first", "lost"),
    [
        ([], 8, 0),
        ([650, 820], 6, 0),
        ([399, 650], 3, 0),
        ([300], 3, 0),
        ([10], 8, 1),  # no segment has it any more
        ([10, 299, 650, 700], 6, 2),
    ],
)
def test_a_message_takes_its_segment_with_it_if_that_is_there(
    manifest: Manifest, waiting: list[int], first: int, lost: int
) -> None:
    segments = extended(manifest, manifest.segments[-2:], waiting)

    assert [one.base // SIZE for one in segments] == [*range(first, 10)]
    assert lost_of(segments, waiting) == lost
