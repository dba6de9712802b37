"""Members and the queues that they read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from eruca.contract.groups import Member, MemberList, QueueRef
from eruca.core.messages.message_queue import MessageQueue
from eruca_console.core.group_matrix import group_matrix

AT: Final = datetime(2026, 11, 21, tzinfo=UTC)


def seen(**reading: list[int]) -> MemberList:
    members = [
        Member(
            client_id=name,
            incarnation="i",
            address="10.0.0.1",
            message_model="clustering",
            consume_type="push",
            is_static=False,
            subscriptions=[],
            joined_at=AT,
            last_seen_at=AT,
            session_seconds=10,
            locks=[QueueRef(topic="orders", queue_id=number) for number in numbers],
        )
        for name, numbers in reading.items()
    ]
    return MemberList(group="g", generation=1, subscription_version=1, members=members)


def queue(broker: str, number: int) -> MessageQueue:
    return MessageQueue("orders", broker, number)


def test_each_member_has_a_row_with_its_queues_on_all_brokers() -> None:
    matrix = group_matrix(
        {"broker-a": seen(m1=[0], m2=[1]), "broker-b": seen(m1=[1], m2=[])},
        [queue("broker-a", 0), queue("broker-a", 1), queue("broker-b", 0), queue("broker-b", 1)],
    )

    assert {row.client_id: row.queues for row in matrix.rows} == {
        "m1": {queue("broker-a", 0), queue("broker-b", 1)},
        "m2": {queue("broker-a", 1)},
    }
    assert matrix.unread == {queue("broker-b", 0)}


def test_a_member_that_a_broker_does_not_know_is_said_to_be_unknown_there() -> None:
    matrix = group_matrix({"broker-a": seen(m1=[0]), "broker-b": seen()}, [])

    assert [(row.client_id, row.absent_from) for row in matrix.rows] == [("m1", ["broker-b"])]
    assert list(matrix.queues) == [queue("broker-a", 0)]


def test_a_group_without_members_has_columns_and_no_rows() -> None:
    matrix = group_matrix({}, [queue("broker-a", 0)])

    assert not matrix.rows
    assert matrix.unread == {queue("broker-a", 0)}
