"""Keyed queues: order per sharding key, and a blocked key stops no other."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca.core.consuming.keyed_queue import KeyedQueue
from eruca.core.consuming.process_queue import ProcessQueue
from support.queued import QueuedMessage, offsets_of


def keyed(*keys: str | None) -> KeyedQueue[QueuedMessage]:
    """Return a queue with a message of each of these keys, at offsets from 0 on."""
    messages = [QueuedMessage(offset, sharding_key=key) for offset, key in enumerate(keys)]
    queue = KeyedQueue(ProcessQueue[QueuedMessage](0), lambda message: message.sharding_key)
    queue.held.put(messages, len(messages))
    queue.add(messages)
    return queue


def test_a_failed_message_blocks_its_key_and_those_of_other_keys_go_on() -> None:
    queue = keyed("a", "b", "a", "b")

    queue.block(queue.take(1, now=0.0), until=5.0)

    assert queue.blocked_keys == ["a"]
    assert offsets_of(queue.take(4, now=1.0)) == [1, 3]
    assert queue.ready_at() == 5.0


def test_when_its_time_is_up_a_key_comes_first_and_in_order() -> None:
    queue = keyed("a", "b", "a", "b")
    queue.block(queue.take(1, now=0.0), until=5.0)

    assert offsets_of(queue.take(1, now=5.0)) == [0]
    # While it is tried, those behind it wait.
    assert offsets_of(queue.take(4, now=5.0)) == [1, 3]


def test_a_key_flows_again_once_none_of_its_messages_is_left() -> None:
    queue = keyed("a", "a", "b")
    queue.block(queue.take(1, now=0.0), until=5.0)

    queue.succeed(queue.take(1, now=5.0))
    assert queue.blocked_keys == ["a"]
    queue.succeed(queue.take(1, now=5.0))

    assert queue.blocked_keys == []
    assert queue.held.commit_offset == 2


def test_what_is_pulled_of_a_blocked_key_joins_it() -> None:
    queue = keyed("a")
    queue.block(queue.take(1, now=0.0), until=5.0)
    late = [QueuedMessage(1, sharding_key="a"), QueuedMessage(2, sharding_key="b")]
    queue.held.put(late, 3)

    queue.add(late)

    assert offsets_of(queue.take(9, now=0.0)) == [2]
    assert offsets_of(queue.take(9, now=5.0)) == [0, 1]


def test_messages_without_a_key_are_one_key() -> None:
    queue = keyed(None, "a", None)

    queue.block(queue.take(1, now=0.0), until=5.0)

    assert offsets_of(queue.take(9, now=0.0)) == [1]


def test_the_offset_to_commit_stays_at_the_blocked_message() -> None:
    queue = keyed("a", "b", "c")
    queue.block(queue.take(1, now=0.0), until=5.0)

    queue.succeed(queue.take(9, now=0.0))

    assert queue.held.commit_offset == 0


def test_what_was_taken_and_not_handled_goes_back_in_front() -> None:
    queue = keyed("a", "a", "b")
    queue.give_back(queue.take(2, now=0.0), now=0.0)
    assert offsets_of(queue.take(1, now=0.0)) == [0]
    queue.block([queue_message(queue, 0)], until=5.0)

    queue.give_back(queue.take(1, now=5.0), now=5.0)

    assert offsets_of(queue.take(9, now=5.0)) == [0, 1]


def queue_message(queue: KeyedQueue[QueuedMessage], offset: int) -> QueuedMessage:
    return queue.held._held[offset]


class Keys(RuleBasedStateMachine):
    """Messages of three keys that fail and succeed in any order; each key's stay in order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = keyed()
        self.now = 0.0
        self.next_offset = 0
        self.open: set[int] = set()
        self.last_done: dict[str | None, int] = defaultdict(lambda: -1)

    @rule(keys=st.lists(st.sampled_from([None, "a", "b"]), max_size=4))
    def pull(self, keys: list[str | None]) -> None:
        messages = [
            QueuedMessage(self.next_offset + i, sharding_key=key) for i, key in enumerate(keys)
        ]
        self.next_offset += len(messages)
        self.queue.held.put(messages, self.next_offset)
        self.queue.add(messages)
        self.open |= {message.queue_offset for message in messages}

    @precondition(lambda self: self.queue.ready_at() is not None)
    @rule(count=st.integers(1, 3), fate=st.sampled_from(["succeed", "block", "give back"]))
    def handle(self, count: int, fate: str) -> None:
        batch = self.queue.take(count, self.now)
        for message in batch:
            key = message.sharding_key
            assert (
                message.queue_offset
                == min(offset for offset in self.open if self.key_of(offset) == key)
                or message is not batch[0]
            )
        if fate == "succeed":
            self.queue.succeed(batch)
            for message in batch:
                assert self.last_done[message.sharding_key] < message.queue_offset
                self.last_done[message.sharding_key] = message.queue_offset
                self.open.remove(message.queue_offset)
        elif fate == "block" and batch:
            self.queue.block(batch, self.now + 2.0)
        else:
            self.queue.give_back(batch, self.now)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def commits_up_to_the_first_open_message(self) -> None:
        assert self.queue.held.commit_offset == min(self.open, default=self.next_offset)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        waiting = {message.queue_offset for message in self.queue._waiting}
        for blocked in self.queue._blocked.values():
            waiting |= set(offsets_of(blocked.messages))
        assert waiting == self.open

    def key_of(self, offset: int) -> str | None:
        return self.queue.held._held[offset].sharding_key


TestKeys = Keys.TestCase
TestKeys.settings = settings(max_examples=100, deadline=None)
