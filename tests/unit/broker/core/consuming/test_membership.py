"""Membership: sessions, generations, and who may join."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import ClientIdInUseError, SubscriptionConflictError
from eruca_broker.core.consuming.membership import CHANGES_PER_RUN, SILENT_MAX, Beat, Membership
from eruca_broker.core.state.group_events import GroupSettings, Subscribed
from eruca_broker.core.state.group_state import Group, LockOwner

ORDERS = (Subscribed("orders", "*", "tag"),)
OTHERS = (Subscribed("orders", "UA", "tag"), Subscribed("payments", "*", "tag"))


def beat(client_id: str = "a", incarnation: str = "1", **fields: object) -> Beat:
    values: dict[str, object] = {"subscriptions": ORDERS, "session_seconds": 10.0, **fields}
    return Beat(client_id, incarnation, **values)  # type: ignore[arg-type]  # Beat's own fields


def joined(*beats: Beat, run: int = 1) -> Membership:
    membership = Membership(run)
    for each in beats:
        membership.heard("g", each, now=0.0, now_ms=0)
    return membership


def group(**fields: object) -> Group:
    values: dict[str, object] = {"subscriptions": ORDERS, "subscription_version": 1, **fields}
    return Group("g", **values)  # type: ignore[arg-type]  # Group's own fields


def test_a_member_is_there_while_its_session_lasts() -> None:
    membership = joined(beat())

    assert membership.session("g", "a", 9.9) is not None
    assert membership.session("g", "a", 10.0) is None
    assert membership.due(9.9) == []
    assert membership.due(10.0) == [("g", "a")]
    assert membership.over("g", 10.0) == ["a"]


def test_a_renewed_session_is_not_due_when_it_would_have_been() -> None:
    membership = joined(beat())
    membership.heard("g", beat(), now=8.0, now_ms=0)

    assert membership.due(12.0) == []
    assert membership.due(18.0) == [("g", "a")]


def test_a_session_that_became_shorter_is_due_earlier_and_once() -> None:
    membership = joined(beat(session_seconds=300.0))
    membership.heard("g", beat(session_seconds=3.0), now=1.0, now_ms=0)

    assert membership.due(4.0) == [("g", "a")]
    membership.remove("g", "a")
    assert membership.due(1_000.0) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(3, 300), st.floats(0, 50))))
def test_each_session_is_due_exactly_when_it_is_over(
    beats: list[tuple[str, float, float]],
) -> None:
    membership = Membership(1)
    ends: dict[str, float] = {}
    now = 0.0
    for client_id, session_seconds, pause in beats:
        now += pause
        due = {client for _, client in membership.due(now)}
        assert due == {client for client, end in ends.items() if end <= now}
        for client in due:
            membership.remove("g", client)
            del ends[client]
        membership.heard("g", beat(client_id, session_seconds=session_seconds), now=now, now_ms=0)
        ends[client_id] = now + session_seconds

    assert len(membership) == len(ends)


def test_only_what_members_must_agree_on_makes_a_generation() -> None:
    membership = Membership(7)
    generations = [membership.generation("g")]

    def changed(each: Beat) -> bool:
        membership.heard("g", each, now=0.0, now_ms=0)
        generations.append(membership.generation("g"))
        return generations[-1] > generations[-2]

    assert changed(beat())
    assert not changed(beat())
    assert not changed(beat(session_seconds=20.0, consume_type="pull"))
    assert changed(beat(subscriptions=OTHERS))
    assert changed(beat(subscriptions=OTHERS, message_model="broadcasting"))
    assert changed(beat("b"))
    assert changed(beat("b", "2"))
    assert generations[0] == 7 * CHANGES_PER_RUN
    assert Membership(8).generation("g") > generations[-1]


def test_a_group_that_was_forgotten_does_not_come_back_older() -> None:
    membership = joined(beat())
    membership.remove("g", "a")
    before = membership.generation("g")

    membership.forget("g")

    assert membership.generation("g") > before
    assert membership.generation("never seen") >= before


def test_holders_have_sessions_and_are_no_members() -> None:
    membership = Membership(1)
    owner = LockOwner("a", "1", 30.0)
    before = membership.generation("g")
    membership.hold("g", owner, 5.0)
    membership.hold("g", owner, 6.0)

    assert membership.is_live("g", owner, 34.9)
    assert not membership.is_live("g", owner, 35.0)
    assert not membership.is_live("g", LockOwner("a", "2", 30.0), 6.0)
    assert membership.members("g") == []
    assert membership.has_sessions("g")
    assert (membership.generation("g"), len(membership)) == (before, 0)


def test_a_holder_that_is_heard_of_joins() -> None:
    membership = Membership(1)
    membership.hold("g", LockOwner("a", "1", 30.0), 0.0)

    admission = membership.admit(group(), beat(), 1.0)
    membership.heard("g", beat(), now=1.0, now_ms=1_000)

    assert (admission.is_renewal, admission.replaces) == (False, None)
    assert [m.joined_at_ms for m in membership.members("g")] == [1_000]


def test_a_renewal_keeps_when_the_member_joined() -> None:
    membership = joined(beat())
    session = membership.heard("g", beat(), now=5.0, now_ms=5_000)

    assert (session.joined_at_ms, session.seen_at_ms) == (0, 5_000)
    assert membership.admit(group(), beat(), 5.0).is_renewal


@pytest.mark.parametrize(
    ("change", "renews"),
    [
        ({}, True),
        ({"address": "elsewhere", "replaces_version": 3}, True),
        ({"incarnation": "2"}, False),
        ({"subscriptions": OTHERS}, False),
        ({"session_seconds": 11.0}, False),
        ({"consume_type": "pull"}, False),
        ({"is_static": True}, False),
    ],
)
def test_a_heartbeat_needs_no_decision_where_it_says_nothing_new(
    change: dict[str, object], *, renews: bool
) -> None:
    membership = joined(beat())
    said = beat(**{"incarnation": "1", **change})  # type: ignore[arg-type]

    assert membership.renews(group(), said, 1.0) is renews
    assert not membership.renews(group(), said, 10.0)


def test_a_heartbeat_needs_a_decision_once_the_group_subscribes_otherwise() -> None:
    membership = joined(beat())
    per_member = GroupSettings(subscription_mode="per_member")

    assert not membership.renews(group(subscriptions=OTHERS), beat(), 1.0)
    assert membership.renews(group(subscriptions=OTHERS, settings=per_member), beat(), 1.0)


@pytest.mark.parametrize(
    ("older_is_static", "newer_is_static", "replaced"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_a_client_id_changes_hands_only_between_static_members(
    *, older_is_static: bool, newer_is_static: bool, replaced: bool
) -> None:
    membership = joined(beat(is_static=older_is_static, address="10.0.0.1:5"))
    newer = beat(incarnation="2", is_static=newer_is_static)

    if replaced:
        old = membership.admit(group(), newer, 1.0).replaces
        assert old is not None
        assert old.incarnation == "1"
    else:
        with pytest.raises(ClientIdInUseError, match=r"10\.0\.0\.1:5.* 9 s"):
            membership.admit(group(), newer, 1.0)
    assert (membership.admit(group(), newer, 10.0).replaces is not None) is replaced
    membership.expire("g", "a")
    assert (membership.admit(group(), newer, 10.0).replaces is not None) is replaced


def test_a_static_member_that_comes_back_itself_takes_nobody_s_place() -> None:
    membership = joined(beat(is_static=True))
    membership.expire("g", "a")

    assert membership.admit(group(), beat(is_static=True), 10.0).replaces is None
    membership.heard("g", beat(is_static=True), now=10.0, now_ms=0)
    membership.remove("g", "a")
    assert membership.admit(group(), beat(incarnation="2", is_static=True), 11.0).replaces is None


def test_so_many_static_members_are_remembered_as_silent() -> None:
    membership = joined(*(beat(str(number), is_static=True) for number in range(SILENT_MAX + 1)))
    for number in range(SILENT_MAX + 1):
        membership.expire("g", str(number))

    replaced = [
        membership.admit(group(), beat(client_id, "2", is_static=True), 10.0).replaces
        for client_id in ("0", "1", str(SILENT_MAX))
    ]

    assert [session is not None for session in replaced] == [False, True, True]


def test_a_process_that_was_replaced_is_not_let_in_again() -> None:
    with pytest.raises(ClientIdInUseError, match="taken over"):
        Membership(1).admit(group(replaced={("a", "1"): None}), beat(), 0.0)


def test_who_is_alone_decides_what_the_group_subscribes_to() -> None:
    other = beat(subscriptions=OTHERS)

    assert Membership(1).admit(group(), other, 0.0).new_subscriptions == OTHERS
    assert joined(beat()).admit(group(), other, 0.0).new_subscriptions == OTHERS
    assert joined(beat("b")).admit(group(), other, 10.0).new_subscriptions == OTHERS
    assert joined(beat("b")).admit(group(), beat(), 0.0).new_subscriptions is None


def test_who_differs_from_the_others_is_told_who_and_in_what() -> None:
    others = joined(*(beat(f"b{n}") for n in range(7)))
    long = (Subscribed("orders", "x" * 200, "sql92"),)

    with pytest.raises(SubscriptionConflictError) as conflict:
        others.admit(group(), beat(subscriptions=OTHERS), 0.0)
    assert "'b0', 'b1', 'b2', 'b3', 'b4' and 2 more" in conflict.value.detail
    assert "'orders': the group has tag '*', the member tag 'UA'" in conflict.value.detail
    assert "'payments': the group has none, the member tag '*'" in conflict.value.detail
    with pytest.raises(SubscriptionConflictError) as conflict:
        others.admit(group(), beat(subscriptions=long), 0.0)
    assert "sql92 'xxx" in conflict.value.detail
    assert len(conflict.value.detail) < 400


def test_many_differences_are_cut_short() -> None:
    many = tuple(Subscribed(f"t{n}", "*", "tag") for n in range(9))

    with pytest.raises(SubscriptionConflictError, match="and 5 more"):
        joined(beat("b")).admit(group(), beat(subscriptions=many), 0.0)


@pytest.mark.parametrize("version", [0, 1, 2, None])
def test_a_cut_over_names_the_version_it_replaces(version: int | None) -> None:
    others = joined(beat("b"))
    newer = beat(subscriptions=OTHERS, replaces_version=version)

    if version == 1:
        assert others.admit(group(), newer, 0.0).new_subscriptions == OTHERS
    else:
        with pytest.raises(SubscriptionConflictError):
            others.admit(group(), newer, 0.0)


def test_members_may_subscribe_each_for_itself_where_the_group_says_so() -> None:
    settings = GroupSettings(subscription_mode="per_member")

    admission = joined(beat("b")).admit(group(settings=settings), beat(subscriptions=OTHERS), 0.0)

    assert admission.new_subscriptions is None


@pytest.mark.parametrize("mode", ["shared", "per_member"])
def test_a_group_has_one_message_model(mode: str) -> None:
    settings = GroupSettings(subscription_mode=mode)  # type: ignore[arg-type]

    with pytest.raises(SubscriptionConflictError, match="broadcasting"):
        joined(beat("b")).admit(group(settings=settings), beat(message_model="broadcasting"), 0.0)
