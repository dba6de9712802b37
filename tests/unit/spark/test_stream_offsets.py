"""A stream's offsets: batches join without a gap, and stay what they are when replayed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.exporting.errors import DataLossError, SourceError
from eruca.exporting.positions import Lost, Position, adopted, compare
from eruca.exporting.ranges import Held, Queue, Range
from eruca.exporting.stream_offsets import StreamOffset, batch_ranges, next_offset
from eruca.exporting.topic_choice import TopicChoice

FIRST, SECOND, THIRD = (Queue("orders", "broker-a", number) for number in range(3))
ID, RUN, LAST = "9f2c51d0-1044", "2026-11-21T07:00:00.000Z", "2026-11-21T08:00:00.000Z"
EMPTY = StreamOffset()


def held(topic_id: str = ID, **sizes: tuple[int, int]) -> dict[Queue, Held]:
    """Return queues ``q0``, ``q1`` … by their least and largest offsets."""
    return {
        Queue("orders", "broker-a", int(name[1:])): Held(
            least, most, least, most, topic_id, RUN, LAST
        )
        for name, (least, most) in sizes.items()
    }


def following(
    start: StreamOffset,
    now: dict[Queue, Held],
    *,
    rows_max: int | None = None,
    fail: bool = True,
    latest: bool = False,
) -> StreamOffset:
    """Return the next offset, as a checkpoint would give it back."""
    advance = next_offset(
        start,
        now,
        begin=lambda _, one: one.max_offset if latest else one.min_offset,
        rows_max=rows_max,
        lost=compare(start.next, now).lost,
    )
    if fail and advance.losses:
        raise advance.losses[0]
    if advance.offset is start:
        return start
    return StreamOffset.parse(json.loads(json.dumps(advance.offset.to_json())))


def at(offset: StreamOffset, queue: Queue) -> int:
    return offset.next[queue].offset


def test_the_first_batch_says_where_its_queues_began() -> None:
    offset = following(EMPTY, held(q0=(5, 20), q1=(0, 0)))

    proof = {"topic_id": ID, "broker_started_at": RUN, "latest_stored_at": LAST}
    assert offset.to_json() == {
        "version": 2,
        "first": {FIRST.text: 5, SECOND.text: 0},
        "next": {FIRST.text: {"offset": 20, **proof}, SECOND.text: {"offset": 0, **proof}},
    }
    assert batch_ranges(EMPTY, offset) == [Range(FIRST, 5, 20, ID)]


def test_a_batch_replayed_is_the_same_though_retention_has_gone_on() -> None:
    logged = following(EMPTY, held(q0=(5, 20)))

    assert batch_ranges(EMPTY, logged) == [Range(FIRST, 5, 20, ID)]


def test_nothing_new_is_the_same_offset_again() -> None:
    offset = following(EMPTY, held(q0=(0, 20)))

    assert following(offset, held(q0=(0, 20))) is offset


def test_latest_means_the_end_as_it_was_at_first_even_of_an_empty_queue() -> None:
    offset = following(EMPTY, held(q0=(0, 20), q1=(0, 0)), latest=True)

    assert batch_ranges(EMPTY, offset) == []
    later = following(offset, held(q0=(0, 21), q1=(0, 3)), latest=True)
    assert batch_ranges(offset, later) == [Range(FIRST, 20, 21, ID), Range(SECOND, 0, 3, ID)]


def test_a_queue_that_comes_later_is_read_whole() -> None:
    offset = following(EMPTY, held(q0=(0, 20)), latest=True)
    later = following(offset, held(q0=(0, 20), q1=(4, 9)), latest=True)

    assert batch_ranges(offset, later) == [Range(SECOND, 4, 9, ID)]
    assert at(later, FIRST) == 20


def test_a_queue_that_is_not_there_for_a_while_is_not_forgotten() -> None:
    offset = following(EMPTY, held(q0=(0, 20), q1=(0, 10)))
    without = following(offset, held(q0=(0, 25)))

    assert (at(without, FIRST), at(without, SECOND)) == (25, 10)
    assert batch_ranges(without, following(without, held(q1=(0, 11)))) == [
        Range(SECOND, 10, 11, ID)
    ]


@pytest.mark.parametrize("size", [7, 20, 22, 1_600])
def test_a_topic_that_was_created_again_is_an_error_however_large_it_is(size: int) -> None:
    offset = following(EMPTY, held(q0=(0, 20)))

    told = (
        r"orders/broker-a/0: topic orders was deleted and created again .*: messages of the former "
        rf"topic from offset 20 are lost; the new topic has messages 0 to {size - 1}, .*"
        r"failOnDataLoss=false"
    )
    with pytest.raises(DataLossError, match=told):
        following(offset, held("9f2c51d0-2096", q0=(0, size)))


@pytest.mark.parametrize("size", [0, 7, 20, 22])
def test_a_topic_that_was_created_again_is_read_from_its_beginning_if_that_is_allowed(
    size: int,
) -> None:
    offset = following(EMPTY, held(q0=(0, 20), q1=(0, 5)))
    now = held("77aa00ff-20", q0=(0, size)) | held(q1=(0, 5))
    later = following(offset, now, fail=False, rows_max=5)

    read = [Range(FIRST, 0, min(size, 5), "77aa00ff-20")] if size else []
    assert batch_ranges(offset, later) == read
    assert following(later, held("77aa00ff-20", q0=(0, size)) | held(q1=(0, 5)), rows_max=1).next


def test_another_log_is_told_from_another_topic() -> None:
    offset = following(EMPTY, held(q0=(0, 20)))

    with pytest.raises(DataLossError, match="the broker has another log now, with another topic"):
        following(offset, held("77aa00ff-1044", q0=(0, 30)))


def test_a_queue_that_ends_before_its_position_is_an_error_and_goes_on_at_its_end() -> None:
    offset = following(EMPTY, held(q0=(0, 20)))

    told = (
        "expected messages up to offset 19, but the queue ends at 7: its log was truncated, "
        "or restored"
    )
    with pytest.raises(DataLossError, match=told):
        following(offset, held(q0=(0, 7)))
    later = following(offset, held(q0=(0, 7)), fail=False)
    assert batch_ranges(offset, later) == []
    assert batch_ranges(later, following(later, held(q0=(0, 9)))) == [Range(FIRST, 7, 9, ID)]


def test_a_position_from_before_the_broker_was_started_is_to_be_proved() -> None:
    position = Position(20, ID, RUN, LAST)
    now = held(q0=(0, 20))
    later = {FIRST: now[FIRST]._replace(broker_started_at="2026-11-21T09:00:00.000Z")}

    assert compare({FIRST: position}, now) == ({}, {})
    assert compare({FIRST: position}, later) == ({}, {FIRST: position})
    assert compare({FIRST: Position(0, ID, RUN, None)}, later) == ({}, {})


def test_what_the_service_could_not_prove_is_lost_and_goes_on_where_it_says() -> None:
    offset = following(EMPTY, held(q0=(0, 20)))
    lost = {FIRST: Lost("the log was restored", 15)}
    advance = next_offset(offset, held(q0=(0, 22)), begin=lambda *_: 0, rows_max=None, lost=lost)

    assert [str(loss).partition(";")[0] for loss in advance.losses] == [
        "orders/broker-a/0: the log was restored"
    ]
    assert batch_ranges(offset, advance.offset) == [Range(FIRST, 15, 22, ID)]


def test_a_position_without_a_topic_gets_the_one_of_now() -> None:
    """Its broker was of a version that did not tell."""
    unknown = {FIRST: Position(20), SECOND: Position(5, "77aa00ff-20"), THIRD: Position(1)}

    assert adopted(unknown, held(q0=(0, 20), q1=(0, 9))) == {
        FIRST: Position(20, ID, RUN, LAST),
        SECOND: Position(5, "77aa00ff-20"),
        THIRD: Position(1),
    }


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            17,
            "belongs to another source: expected an offset with version, first and next, found 17",
        ),
        ([], "belongs to another source"),
        ({}, "belongs to another source: .*found {}"),
        ({"orders": {"0": 17}}, 'belongs to another source: .*found {"orders": {"0": 17}}'),
        ({"version": 3, "first": {}, "next": {}}, "version 3, expected 2"),
        ({"version": 2, "first": {}, "next": {FIRST.text: 20}}, "invalid offset"),
        ({"version": 2, "first": {}, "next": {FIRST.text: {"offset": -1}}}, "found -1"),
        ({"version": 2, "first": {}, "next": {FIRST.text: {"offset": True}}}, "found True"),
        ({"version": 2, "first": {}, "next": {FIRST.text: {"ofset": 1}}}, "invalid offset"),
        ({"version": 2, "first": {}, "next": {"orders/0": {"offset": 1}}}, "TOPIC/BROKER/QUEUE"),
        ({"version": 2, "first": [], "next": {}}, "invalid offset"),
        ({"first": {}, "next": {FIRST.text: "20"}}, "found '20'"),
    ],
)
def test_an_offset_of_a_foreign_form_is_refused(document: Any, told: str) -> None:  # noqa: ANN401
    with pytest.raises(SourceError, match=told) as refused:
        StreamOffset.parse(document)

    assert "use another checkpoint" in str(refused.value)


def test_an_offset_of_an_earlier_version_and_one_of_another_topic_are_faults() -> None:
    earlier = StreamOffset.parse({"first": {}, "next": {FIRST.text: 20}})

    assert batch_ranges(StreamOffset({FIRST: 3}, {FIRST: Position(3)}), earlier) == [
        Range(FIRST, 3, 20)
    ]
    [fault] = earlier.faults(TopicChoice(("orders", "payments")))
    assert "written by an earlier version" in fault
    offset = following(EMPTY, held(q0=(0, 20)))
    assert offset.faults(TopicChoice(("orders",))) == []
    [fault] = offset.faults(TopicChoice(("payments", "refunds")))
    assert (
        "the checkpoint belongs to orders, which the stream of topics payments, refunds does not"
        in fault
    )


def test_retention_that_was_faster_is_an_error() -> None:
    offset = following(EMPTY, held(q0=(0, 20)))

    with pytest.raises(DataLossError, match=r"orders/broker-a/0: messages 20 to 29 .* deleted"):
        following(offset, held(q0=(30, 40)))


def test_retention_that_was_faster_is_passed_over_if_that_is_allowed() -> None:
    offset = following(EMPTY, held(q0=(0, 20)))
    later = following(offset, held(q0=(30, 40)), fail=False)

    assert batch_ranges(offset, later) == [Range(FIRST, 30, 40, ID)]
    assert batch_ranges(later, following(later, held(q0=(30, 50)))) == [Range(FIRST, 40, 50, ID)]


def test_an_offset_that_does_not_say_where_a_queue_began_is_refused() -> None:
    with pytest.raises(SourceError, match="does not contain the start of"):
        batch_ranges(EMPTY, StreamOffset({}, {FIRST: Position(3)}))


def test_an_offset_that_no_stream_wrote_after_the_one_before_is_refused() -> None:
    before = following(EMPTY, held(q0=(0, 20), q1=(0, 10)))

    for end in (EMPTY, StreamOffset({}, {FIRST: before.next[FIRST]})):
        with pytest.raises(SourceError, match=r"the checkpoint is damaged: .* found none"):
            batch_ranges(before, end)
    back = StreamOffset({}, {**before.next, FIRST: Position(19)})
    with pytest.raises(SourceError, match="offset 20 or more of orders/broker-a/0, found 19"):
        batch_ranges(before, back)


def test_the_empty_offset_names_its_version() -> None:
    assert StreamOffset.parse(json.loads(json.dumps(EMPTY.to_json()))) == EMPTY


@given(
    growths=st.lists(
        st.dictionaries(st.sampled_from([FIRST, SECOND, THIRD]), st.integers(0, 20)), max_size=6
    ),
    rows_max=st.integers(3, 40),
)
def test_batches_hold_each_message_once_however_queues_grow(
    growths: list[dict[Queue, int]], rows_max: int
) -> None:
    sizes: dict[Queue, int] = {}
    offset = EMPTY
    seen: dict[Queue, int] = {}
    still: list[dict[Queue, int]] = [{}] * (6 * 3 * 20 // rows_max + 1)
    for growth in [*growths, *still]:
        for queue, rows in growth.items():
            sizes[queue] = sizes.get(queue, 0) + rows
        now = {queue: Held(0, size, 0, size) for queue, size in sizes.items()}
        later = following(offset, now, rows_max=rows_max)
        batch = batch_ranges(offset, later)
        assert sum(one.rows for one in batch) <= rows_max
        for one in batch:
            assert one.start == seen.get(one.queue, 0)
            seen[one.queue] = one.end
        offset = later

    assert seen == {queue: size for queue, size in sizes.items() if size}
