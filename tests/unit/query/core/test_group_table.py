"""Groups as rows: what is written is what the facts, one after the other, come to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eruca_query.core.group_facts import (
    GroupFact,
    GroupGone,
    PositionMoved,
    SubscriptionsReplaced,
    TopicGone,
)
from eruca_query.core.group_table import Commit, GroupChanges, GroupTable

groups = st.sampled_from(["g", "h"])
topics = st.sampled_from(["t", "u"])
moves = st.builds(
    PositionMoved,
    log_offset=st.integers(0, 9),
    at_ms=st.integers(0, 9),
    group=groups,
    topic=topics,
    queue_id=st.integers(0, 1),
    next_offset=st.integers(0, 9),
    source=st.sampled_from(["committed", "reset", "start", "deliveries", "snapshot"]),
)
subscriptions = st.builds(
    SubscriptionsReplaced,
    group=groups,
    subscriptions=st.lists(
        st.tuples(topics, st.sampled_from(["*", "a"]), st.just("tag")),
        max_size=2,
        unique_by=lambda subscription: subscription[0],
    ).map(tuple),
    is_whole=st.booleans(),
)
facts = st.lists(
    st.one_of(
        moves,
        moves,
        subscriptions,
        st.builds(GroupGone, group=groups),
        st.builds(TopicGone, topic=topics, log_offset=st.integers(0, 9)),
    ),
    max_size=12,
)


class Rows:
    """The rows of tables, changed as the group table orders."""

    def __init__(self) -> None:
        self.positions: dict[Any, tuple[int, str]] = {}
        self.subscriptions: dict[str, Any] = {}
        self.commits: list[Commit] = []

    def write(self, changes: GroupChanges) -> None:
        for key in list(self.positions):
            if key[0] in changes.gone_groups or key[1][0] in changes.gone_topics:
                del self.positions[key]
        for group in changes.gone_groups:
            self.subscriptions.pop(group, None)
        self.positions |= {
            key: (moved.next_offset, moved.source) for key, moved in changes.positions.items()
        }
        self.commits += changes.commits
        self.subscriptions |= changes.subscriptions

    def table(self) -> GroupTable:
        table = GroupTable()
        for (group, queue), (next_offset, source) in self.positions.items():
            table.put_position(group, queue, next_offset, source)
        for group, its in self.subscriptions.items():
            for topic, (text, kind) in its.items():
                table.put_subscription(group, topic, text, kind)
        return table


def without_empty(rows: Rows) -> tuple[dict[Any, tuple[int, str]], dict[str, Any], list[Commit]]:
    its = {group: its for group, its in rows.subscriptions.items() if its}
    return rows.positions, its, rows.commits


@given(st.lists(facts, max_size=4))
def test_it_does_not_matter_how_facts_are_divided_or_when_rows_are_read_again(
    blocks: list[list[GroupFact]],
) -> None:
    kept, read_again, at_once = Rows(), Rows(), Rows()
    table = GroupTable()
    for block in blocks:
        kept.write(table.apply(block))
        read_again.write(read_again.table().apply(block))
    at_once.write(GroupTable().apply(fact for block in blocks for fact in block))

    assert without_empty(kept) == without_empty(read_again) == without_empty(at_once)


@given(facts)
def test_every_name_that_is_written_is_named(some: list[GroupFact]) -> None:
    changes = GroupTable().apply(some)

    named = changes.names()
    assert {commit.moved.group for commit in changes.commits} <= named
    assert {topic for its in changes.subscriptions.values() for topic in its} <= named
    assert {*changes.gone_topics, *changes.gone_groups} <= named


def moved(next_offset: int, source: Any = "committed") -> PositionMoved:  # noqa: ANN401
    return PositionMoved(next_offset, 0, "g", "t", 0, next_offset, source)


def test_a_commit_tells_whether_it_went_back() -> None:
    changes = GroupTable().apply([moved(5), moved(5), moved(3, "reset"), moved(9)])

    assert [(c.moved.next_offset, c.is_back) for c in changes.commits] == [
        (5, False),
        (3, True),
        (9, False),
    ]


def test_what_ends_deliveries_is_a_commit_though_it_moves_nothing() -> None:
    changes = GroupTable().apply([moved(5, "deliveries"), moved(5, "reset"), moved(5)])

    assert [(c.moved.source, c.is_back) for c in changes.commits] == [("reset", False)]


def test_a_snapshot_repeats_what_is_known_and_adds_what_is_not() -> None:
    table = GroupTable()

    assert table.apply([moved(5, "snapshot")]).commits == []
    assert table.apply([moved(7), moved(5, "snapshot")]).positions["g", ("t", 0)].next_offset == 7
