"""Process queues: what may be committed never passes what is not done with, and never goes back."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eruca.core.consuming.process_queue import ProcessQueue
from support.queued import QueuedMessage, filled, queued


def test_the_offset_to_commit_is_that_of_the_first_message_held() -> None:
    messages = queued(5, 6, 7)
    queue = filled(messages)

    queue.remove(messages[1:])
    assert queue.commit_offset == 5

    queue.remove(messages[:1])
    assert queue.commit_offset == 8


def test_where_nothing_is_held_the_next_pull_decides() -> None:
    queue: ProcessQueue[QueuedMessage] = ProcessQueue(5)
    assert queue.commit_offset == 5

    queue.put([], 30)  # a filter let nothing through up to there
    assert queue.commit_offset == 30


def test_what_is_kept_is_held_until_it_is_done_with_or_to_be_handled_again() -> None:
    messages = queued(5, 6, 7)
    queue = filled(messages)

    queue.keep(messages[:2])
    queue.keep([*messages[:1], *queued(8)])  # no news, and not held
    assert (queue.kept_count, queue.kept_size, queue.count) == (2, 20, 3)

    queue.remove(messages[:1])
    assert (queue.kept_count, queue.kept_size, queue.commit_offset) == (1, 10, 6)

    queue.keep_none()
    assert (queue.kept_count, queue.kept_size, queue.count) == (0, 0, 2)

    queue.keep(messages[2:])
    queue.clear()
    assert (queue.kept_count, queue.kept_size) == (0, 0)


def test_it_counts_messages_bytes_and_the_span_of_offsets() -> None:
    messages = queued(10, 14, 19)
    queue = filled(messages)

    assert (queue.count, queue.size, queue.span) == (3, 30, 9)
    assert queue.remove(messages[:1]) == 10
    assert (queue.count, queue.size, queue.span) == (2, 20, 5)


def test_a_message_of_the_same_offset_that_came_before_a_restart_is_another() -> None:
    before, after = queued(5, 6), queued(5, 6)
    queue = filled(before)
    queue.restart(5)
    queue.put(after, 7)

    assert queue.remove(before) == 0
    assert before[0] not in queue
    assert after[0] in queue


def test_forgetting_everything_leaves_what_may_be_committed_where_it_is() -> None:
    messages = queued(5, 6, 7)
    queue = filled(messages)
    queue.remove(messages[:1])

    assert queue.clear() == 20
    assert (queue.count, queue.size, queue.span, queue.commit_offset) == (0, 0, 0, 6)


class Consumption(RuleBasedStateMachine):
    """Pulls and completions in any order, beside the set of offsets that are not done with."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: ProcessQueue[QueuedMessage] = ProcessQueue(100)
        self.open: dict[int, QueuedMessage] = {}
        self.next_offset = self.committed = 100

    @rule(passed=st.lists(st.booleans(), max_size=5))
    def pull(self, passed: list[bool]) -> None:
        """Pull so many offsets, of which a filter lets some through."""
        messages = queued(
            *(self.next_offset + i for i, is_passed in enumerate(passed) if is_passed)
        )
        self.next_offset += len(passed)
        self.queue.put(messages, self.next_offset)
        self.open |= {message.queue_offset: message for message in messages}

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.open)))
        self.queue.remove([self.open.pop(offset)])

    @invariant()
    def commits_up_to_the_first_open_message(self) -> None:
        assert self.queue.commit_offset == min(self.open, default=self.next_offset)
        assert self.queue.commit_offset >= self.committed
        self.committed = self.queue.commit_offset

    @invariant()
    def holds_what_is_open(self) -> None:
        assert self.queue.offsets == sorted(self.open)
        assert self.queue.size == 10 * len(self.open)


TestConsumption = Consumption.TestCase
TestConsumption.settings = settings(max_examples=50, deadline=None)
