"""Results of conditions are remembered, forgotten at a limit, and never invented."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.consuming.known_mismatches import (
    CONDITION_SIZE_MAX,
    STRETCH_COUNT,
    KnownMismatches,
)

END = 3 * STRETCH_COUNT
OFFSETS = st.one_of(
    st.lists(st.integers(0, END - 1), unique=True, max_size=40).map(sorted),
    st.builds(range, st.integers(0, END), st.integers(0, END)).map(list),
)
NOTES = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from(["a", "b"]), OFFSETS), min_size=1, max_size=6
)


@given(NOTES, st.integers(0, END - 1), st.integers(1, END), st.integers(1, END))
def test_it_is_evaluated_everywhere_but_where_it_is_known_to_exclude(
    notes: list[tuple[int, str, list[int]]], first: int, count: int, wanted: int
) -> None:
    count = min(count, END - first)
    known = KnownMismatches()
    for note in notes:
        known.note(*note)
    generation, condition, _ = notes[0]
    excluded = {
        offset
        for name, text, offsets in notes
        if (name, text) == notes[0][:2]
        for offset in offsets
    }
    expected = [place for place in range(count) if first + place not in excluded]

    places, end = known.unknown(generation, condition, first, count, wanted)

    assert places.tolist() == expected[:wanted]
    assert end == (expected[wanted] if len(expected) > wanted else count)


def test_the_least_recently_used_stretch_is_forgotten() -> None:
    known = KnownMismatches(stretches_max=2)
    for number in range(2):
        known.note(1, "a", [number * STRETCH_COUNT])
    known.unknown(1, "a", 0, 1, 1)  # used
    known.note(1, "a", range(2 * STRETCH_COUNT, 2 * STRETCH_COUNT + 100))

    assert len(known) == 2
    assert not len(known.unknown(1, "a", 0, 1, 9)[0])
    assert len(known.unknown(1, "a", STRETCH_COUNT, 1, 9)[0])
    assert not len(known.unknown(1, "a", 2 * STRETCH_COUNT, 100, 9)[0])


def test_a_very_long_condition_is_not_remembered() -> None:
    known = KnownMismatches()
    known.note(1, "a" * (CONDITION_SIZE_MAX + 1), [1])
    assert not len(known)
