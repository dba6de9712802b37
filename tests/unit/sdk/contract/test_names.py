"""Names of topics and groups: legal, the system's, derived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract import names
from eruca.contract.limits import GROUP_SIZE_MAX
from eruca.contract.names import NameFault
from support.rocketmq_rules import pop_retry_topic, pop_retry_topic_v1

LEGAL = st.text("abcXYZ019_-%|", min_size=1)


@given(LEGAL)
def test_a_name_of_legal_characters_is_legal_up_to_its_length(name: str) -> None:
    is_long = len(name) > 127

    assert names.broker_topic_fault(name[:127]) is None
    assert names.client_topic_fault(name) == (NameFault.TOO_LONG if is_long else None)


@pytest.mark.parametrize("name", ["", " ", "\t\n\x1c", "\u2028\u3000\u1680"])
def test_a_blank_name_is_told_as_blank(name: str) -> None:
    for check in (
        names.broker_topic_fault,
        names.broker_group_fault,
        names.client_topic_fault,
        names.client_group_fault,
    ):
        assert check(name) is NameFault.BLANK


@pytest.mark.parametrize("name", ["a b", "a.b", "a\n", "é", "\xa0", "\x85", "a/b", "😀"])
def test_other_characters_are_illegal(name: str) -> None:
    assert names.broker_topic_fault(name) is NameFault.ILLEGAL_CHARACTER
    assert names.client_group_fault(name) is NameFault.ILLEGAL_CHARACTER


def test_broker_and_client_differ_in_what_they_tell_first() -> None:
    name = "." * 128

    assert names.broker_topic_fault(name) is NameFault.ILLEGAL_CHARACTER
    assert names.client_topic_fault(name) is NameFault.TOO_LONG
    assert names.broker_group_fault(name) is NameFault.ILLEGAL_CHARACTER
    assert names.client_group_fault(name) is NameFault.TOO_LONG


def test_length_is_counted_as_java_does() -> None:
    assert names.client_topic_fault("😀" * 64) is NameFault.TOO_LONG
    assert names.client_topic_fault("\ud800" * 127) is NameFault.ILLEGAL_CHARACTER


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_only_the_broker_lets_derived_topics_be_longer(prefix: str) -> None:
    name = prefix + "g" * 200

    assert names.broker_topic_fault(name) is None
    assert names.client_topic_fault(name) is NameFault.TOO_LONG
    assert names.broker_topic_fault(name + "g" * 60) is NameFault.TOO_LONG


def test_every_topic_derived_from_a_group_is_legal() -> None:
    group = "g" * GROUP_SIZE_MAX
    assert names.broker_group_fault(group) is None
    assert names.broker_group_fault(group + "g") is NameFault.TOO_LONG

    for topic in (names.retry_topic(group), names.dead_letter_topic(group)):
        assert names.broker_topic_fault(topic) is None


def test_a_popping_group_has_a_retry_topic_for_each_topic() -> None:
    assert pop_retry_topic("g", "t") == "%RETRY%g+t"
    assert pop_retry_topic_v1("g", "t") == "%RETRY%g_t"


@pytest.mark.parametrize("name", ["TBW102", "rmq_sys_anything", names.EVENTS_TOPIC])
def test_system_topics_are_known(name: str) -> None:
    assert names.is_system_topic(name)


def test_system_groups_are_known_by_their_prefix() -> None:
    assert names.is_system_group("CID_RMQ_SYS_x")
    assert not names.is_system_group("cid_rmq_sys_x")


@pytest.mark.parametrize("fault", NameFault)
def test_what_is_wrong_with_a_name_can_be_said(fault: NameFault) -> None:
    assert fault.said.startswith(("is ", "contains "))
