"""Pieces: the same bytes in fewer writes, and the large ones untouched."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from eruca_chassis.connections.pieces import JOIN_SIZE_MAX, joined

SIZES = st.sampled_from([0, 1, 1_000, JOIN_SIZE_MAX // 2, JOIN_SIZE_MAX, JOIN_SIZE_MAX + 1])


@given(sizes=st.lists(SIZES, max_size=12))
def test_joined_pieces_are_the_same_bytes_in_no_more_pieces(sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]

    fewer = list(joined(pieces))

    assert b"".join(fewer) == b"".join(pieces)
    assert len(fewer) <= len(pieces)
    assert all(len(a) + len(b) > JOIN_SIZE_MAX for a, b in itertools.pairwise(fewer))


def test_a_large_piece_is_not_copied() -> None:
    large = memoryview(bytes(JOIN_SIZE_MAX + 1))

    [first, second, third] = joined([b"a", large, b"b"])

    assert second is large
    assert (bytes(first), bytes(third)) == (b"a", b"b")
