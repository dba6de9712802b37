"""The topics of a registration: refused whole if one of them could not be used."""

from __future__ import annotations

import pytest

from eruca.contract.errors import ValidationError
from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca.contract.topics import TopicConfig
from eruca_namesrv.topic_lists import FAULTS_SHOWN_MAX, check_topics


def topic(name: str = "t", read: int = 4, write: int = 4) -> TopicConfig:
    return TopicConfig(topic=name, read_queue_count=read, write_queue_count=write, permission="rw")


def test_sound_topics_pass_even_with_no_queues_and_none_at_all() -> None:
    check_topics(None)
    check_topics([])
    check_topics([topic("%RETRY%g", 0, QUEUE_COUNT_MAX), topic("u", QUEUE_COUNT_MAX, 0)])


@pytest.mark.parametrize(
    ("topics", "pointer"),
    [
        ([topic("a b")], "/body/topics/0/topic"),
        ([topic(), topic("")], "/body/topics/1/topic"),
        ([topic("x" * 128)], "/body/topics/0/topic"),
        ([topic(), topic()], "/body/topics/1/topic"),
        ([topic(read=-1)], "/body/topics/0/read_queue_count"),
        ([topic(write=QUEUE_COUNT_MAX + 1)], "/body/topics/0/write_queue_count"),
    ],
)
def test_a_fault_is_pointed_at(topics: list[TopicConfig], pointer: str) -> None:
    with pytest.raises(ValidationError) as refused:
        check_topics(topics)

    assert [error["pointer"] for error in refused.value.errors] == [pointer]


def test_a_long_list_of_faults_is_cut() -> None:
    with pytest.raises(ValidationError, match=r"and 999 more") as refused:
        check_topics([topic(f"bad name {i}") for i in range(1_000)])

    assert len(refused.value.errors) == FAULTS_SHOWN_MAX
