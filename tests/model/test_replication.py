"""Long random histories of three replicas, with all accidents at once: no promise is broken.

Small groups are searched whole in ``tests/unit/broker/core/replication/test_small_worlds.py``. Here
Hypothesis chooses among what may happen next, further than any search reaches.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.replication_world import Budget, Rules, Worlds

STEPS_MAX = 80
MUCH = Budget(writes=4, terms=4, changes=4, crashes=2, power_cuts=2, wipes=1)


@pytest.mark.parametrize("is_sync", [False, True], ids=["async", "sync"])
@settings(max_examples=300, deadline=None)
@given(choices=st.lists(st.integers(0, 2**16), min_size=STEPS_MAX, max_size=STEPS_MAX))
def test_no_history_breaks_a_promise(choices: list[int], *, is_sync: bool) -> None:
    worlds = Worlds(Rules(is_sync=is_sync))
    world = worlds.first(3, MUCH, in_sync=2)

    for choice in choices:
        following = list(worlds.following(world))  # raises where a promise is broken
        if not following:
            break
        world = following[choice % len(following)]
