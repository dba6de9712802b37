"""Flow control: pulling stops at each bound, and begins again at half of it."""

from __future__ import annotations

import pytest

from eruca.core.consuming.flow_control import FlowLimits

LIMITS = FlowLimits(count_max=100, size_max=1_000, span_max=200)


@pytest.mark.parametrize(
    ("count", "size", "span", "has_room"),
    [
        (0, 0, 0, True),
        (50, 500, 200, True),
        (51, 0, 0, False),
        (0, 501, 0, False),
        (0, 0, 201, False),
    ],
)
def test_there_is_room_below_every_bound(count: int, size: int, span: int, has_room: bool) -> None:
    assert LIMITS.has_room(count=count, size=size, span=span) is has_room


def test_the_span_does_not_matter_where_nothing_overtakes() -> None:
    assert FlowLimits(100, 1_000, span_max=None).has_room(count=1, size=1, span=10**9)


@pytest.mark.parametrize(
    ("count", "kept", "has_room"),
    [
        (60, 60, True),  # nobody works on any of them
        (80, 60, True),
        (81, 60, False),  # half of the room that is left is taken
        (99, 99, True),
        (100, 100, False),
    ],
)
def test_what_waits_for_a_commit_only_makes_the_room_smaller(
    count: int, kept: int, has_room: bool
) -> None:
    assert LIMITS.has_room(count=count, size=0, span=0, kept_count=kept) is has_room
    sizes = {"size": 10 * count, "kept_size": 10 * kept}
    assert LIMITS.has_room(count=0, span=0, **sizes) is has_room
