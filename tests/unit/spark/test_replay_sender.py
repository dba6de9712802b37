"""What a replay sends along, where to, and what it takes for the same message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.properties import RESERVED
from pyspark_eruca.replay_sender import RESERVED_PROPERTIES, queue_index
from pyspark_eruca.replayed import Digests, replay_digest


def test_no_property_that_a_broker_would_refuse_is_sent_along() -> None:
    assert RESERVED_PROPERTIES == RESERVED


@given(st.text(min_size=1), st.integers(1, 64))
def test_a_sharding_key_goes_to_the_queue_its_producers_choose(key: str, count: int) -> None:
    assert queue_index(key, count) == queue_of_hash(string_hash(key), count)


@given(
    st.sets(st.binary(min_size=16, max_size=16), max_size=50), st.binary(min_size=16, max_size=16)
)
def test_digests_are_a_set(digests: set[bytes], other: bytes) -> None:
    held = Digests(digests)

    assert len(held) == len(digests)
    assert all(digest in held for digest in digests)
    assert (other in held) == (other in digests)


def test_a_message_is_known_by_its_replay_and_its_origin() -> None:
    one = replay_digest("again", "orders/broker-a/0/17")

    assert one == replay_digest("again", "orders/broker-a/0/17")
    assert one != replay_digest("again", "orders/broker-a/0/18")
    assert one != replay_digest("once more", "orders/broker-a/0/17")
    assert len(one) == Digests.SIZE
