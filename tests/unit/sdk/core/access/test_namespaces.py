"""Namespaces: the two directions of a name, and what no principal of a namespace may reach."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eruca.contract.access import PolicyDocument, Resource, ResourceKind, Right, topic_resource
from eruca.contract.names import SYSTEM_TOPICS, dead_letter_topic, retry_topic
from eruca.contract.recall_handles import RecallHandle, decode_recall_handle, encode_recall_handle
from eruca.core.access.differences import differences, losers
from eruca.core.access.namespaces import Namespace, Namespaces
from eruca.core.access.policy import Policy

SPACES: Final = [Namespace("team-a-"), Namespace("team-b-"), Namespace("x_"), Namespace("a|b|")]
NAMES: Final = st.one_of(
    st.text("abz%|_-1", min_size=1, max_size=12),
    st.sampled_from([*sorted(SYSTEM_TOPICS), "rmq_sys_x", "team-a-orders", "team-b-orders"]),
    st.sampled_from(["orders", "%RETRY%orders", "%DLQ%%RETRY%x", "%RETRY%team-b-g"]),
)
TENANT: Final = "user:tenant"
ALL: Final = {
    "allow": ["produce", "consume", "query", "administer"],
    "on": ["topic:*", "group:*", "broker:*", "cluster", "log", "audit"],
    "to": ["user:tenant", "user:other", "oidc:corp/ann"],
}


def policy_document(*namespaces: dict[str, Any], **more: Any) -> PolicyDocument:  # noqa: ANN401
    return PolicyDocument.model_validate({"rules": [ALL], "namespaces": namespaces, **more})


@given(st.sampled_from(SPACES), NAMES)
def test_a_whole_name_has_one_short_form(space: Namespace, short: str) -> None:
    assert space.short_group(space.whole_group(short)) == short
    assert space.short_topic(retry_topic(space.whole_group(short))) == retry_topic(short)
    assert space.short_topic(dead_letter_topic(space.whole_group(short))) == dead_letter_topic(
        short
    )
    whole = space.whole_topic(short)
    if whole not in ("%RETRY%", "%DLQ%"):
        assert space.short_topic(whole) == short


@given(st.sampled_from(SPACES), NAMES)
def test_what_a_principal_says_is_in_its_namespace_and_in_no_other(
    space: Namespace, short: str
) -> None:
    whole = space.whole_topic(short)
    resource = topic_resource(whole)
    is_named = resource.kind in (ResourceKind.TOPIC, ResourceKind.GROUP) and bool(resource.name)
    assert space.has(Resource(ResourceKind.TOPIC, whole)) == is_named
    for other in SPACES:
        if other != space:
            assert other.short_topic(whole) is None
            assert other.short_group(space.whole_group(short)) is None
            assert not other.has(Resource(ResourceKind.TOPIC, whole))
            assert not other.has(Resource(ResourceKind.GROUP, space.whole_group(short)))


@given(st.sampled_from(SPACES), NAMES, st.text("ab c", min_size=1))
def test_a_recall_handle_keeps_all_but_its_topic(
    space: Namespace, topic: str, message_id: str
) -> None:
    short = RecallHandle(topic, "broker-a", 17, message_id)
    whole = decode_recall_handle(space.whole_recall_handle(encode_recall_handle(short)))
    assert whole == short._replace(topic=space.whole_topic(topic))
    assert space.short_recall_handle(encode_recall_handle(whole)) in (
        encode_recall_handle(short),
        None,
    )
    assert space.short_recall_handle("nonsense") is None
    assert space.whole_recall_handle("nonsense") == "nonsense"


def test_an_empty_name_does_not_become_the_namespace_itself() -> None:
    [space, *_] = SPACES
    assert (space.whole_topic(""), space.whole_group("")) == ("", "")
    assert space.short_topic("team-a-") is None
    assert not space.has(Resource(ResourceKind.TOPIC, "team-a-"))


def test_a_resource_of_a_rule_is_made_whole() -> None:
    [space, *_] = SPACES
    assert space.whole_resource("topic:orders") == "topic:team-a-orders"
    assert space.whole_resource("topic:%DLQ%g") == "topic:%DLQ%team-a-g"
    assert space.whole_resource("group:g") == "group:team-a-g"
    for same in ("log", "cluster", "audit", "broker:broker-a", "nonsense"):
        assert space.whole_resource(same) == same


@pytest.mark.parametrize("right", list(Right))
def test_no_rule_leads_out_of_a_namespace(right: Right) -> None:
    policy = Policy(policy_document({"name": "team-a-", "to": [TENANT]}))
    for inside in ("topic:team-a-orders", "group:team-a-g"):
        assert policy.decide(TENANT, right, Resource.of(inside)).allowed
    outside = ["topic:orders", "topic:team-b-orders", "topic:team-a-", "group:g", "log", "cluster"]
    for name in (*outside, "audit", "broker:broker-a"):
        assert not policy.decide(TENANT, right, Resource.of(name)).allowed
        assert policy.decide("user:other", right, Resource.of(name)).allowed
        explained = policy.explain(TENANT, right, Resource.of(name))
        assert explained.reason == f"{TENANT} is in the namespace team-a-, and {name} is not"


def test_a_namespace_of_its_own_counts_before_those_of_roles() -> None:
    document = policy_document(
        {"name": "team-a-", "to": ["role:a"]},
        {"name": "team-b-", "to": ["role:b"]},
        {"name": "own-", "to": [TENANT]},
        roles={"a": [TENANT, "user:other"]},
    )
    namespaces = Namespaces(document)
    assert [one.name for one in namespaces.of(TENANT)] == ["own-"]
    assert [one.name for one in namespaces.of("user:other")] == ["team-a-"]
    assert namespaces.of("user:stranger") == ()
    both = namespaces.of("user:other", ("role:b",))
    assert [one.name for one in both] == ["team-a-", "team-b-"]
    assert not Namespaces(PolicyDocument())


def test_whoever_is_in_several_namespaces_has_no_right() -> None:
    policy = Policy(
        policy_document(
            {"name": "team-a-", "to": ["role:a"]}, {"name": "team-b-", "to": ["role:b"]}
        )
    )
    topic = Resource.of("topic:team-a-orders")
    ann, roles = "oidc:corp/ann", ("role:a", "role:b")
    assert policy.decide(ann, Right.PRODUCE, topic, roles=("role:a",)).allowed
    assert not policy.decide(ann, Right.PRODUCE, topic, roles=roles).allowed
    explained = policy.explain(ann, Right.PRODUCE, topic, roles=roles)
    assert explained.reason == (
        "oidc:corp/ann is in several namespaces, team-a- and team-b-; nothing is in all of them"
    )


@pytest.mark.parametrize(
    ("namespaces", "fault"),
    [
        ([("team-", "user:a"), ("team-a-", "user:b")], "overlap"),
        ([("team-", "user:a"), ("team-", "user:b")], "overlap"),
        ([("a-", "user:a"), ("b-", "user:a")], "several namespaces have one holder: user:a"),
        ([("team", "user:a")], "found 'team'; such as team-"),
        ([("%RETRY%", "user:a")], "expected letters, digits"),
        ([("-", "user:a")], "expected letters, digits"),
        ([(f"{'a' * 64}-", "user:a")], "at most 64"),
    ],
)
def test_invalid_namespaces_are_refused(namespaces: list[tuple[str, str]], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        policy_document(*({"name": name, "to": [holder]} for name, holder in namespaces))


def test_a_change_says_who_enters_and_leaves_a_namespace() -> None:
    before = policy_document({"name": "team-a-", "to": [TENANT, "user:other"]})
    after = policy_document({"name": "team-a-", "to": ["user:other", "role:x"]})
    found = differences(before, after, now_ms=0)
    assert found.namespaces_added == ["team-a- for role:x"]
    assert found.namespaces_removed == [f"team-a- for {TENANT}"]
    assert losers(found) == [
        "who means other names: team-a- for role:x",
        f"who means other names: team-a- for {TENANT}",
    ]
