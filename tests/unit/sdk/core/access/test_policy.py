"""Decisions: the most specific rule decides, a denial wins among equal ones, and none means no."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from pydantic import ValidationError

from eruca.contract.access import (
    AccessRule,
    PolicyDocument,
    Resource,
    ResourceKind,
    Right,
    topic_resource,
)
from eruca.core.access.differences import differences, losers
from eruca.core.access.policy import FOREVER_MS, Decision, Policy
from eruca.core.access.roles import PREDEFINED_ROLES, PREDEFINED_RULES

NOW_MS = 1_800_000_000_000


def allows(policy: Policy, principal: str, right: str, resource: str, *, address: str = "") -> bool:
    asked = Resource.of(resource)
    return policy.decide(principal, Right(right), asked, address=address).allowed


def policy_of(*rules: dict[str, Any], **roles: list[str]) -> Policy:
    return Policy(PolicyDocument.model_validate({"rules": rules, "roles": roles}))


# --- The reference model --------------------------------------------------------------------------


class Question(NamedTuple):
    principal: str
    right: Right
    resource: str
    address: str
    now_ms: int


def model(document: PolicyDocument, question: Question) -> bool:
    """Decide by visiting every rule: as the rules are explained, and no faster."""
    principal, right, resource, address, now_ms = question
    holders = {principal} | {
        f"role:{role}" for role, members in document.roles.items() if principal in members
    }
    found = []
    for rule in [*PREDEFINED_RULES, *document.rules]:
        if right not in rule.rights or not holders & set(rule.to):
            continue
        if rule.until is not None and now_ms >= rule.until.timestamp() * 1000:
            continue
        if rule.networks and not (
            any(ip_address(address) in ip_network(text) for text in rule.networks)
            if address
            else not rule.grants  # an unknown address may be any
        ):
            continue
        for pattern in rule.on:
            if pattern == resource:
                found.append((1_000, not rule.grants))  # a name is longer than any beginning
            elif pattern.endswith("*") and resource.startswith(pattern[:-1]):
                found.append((len(pattern), not rule.grants))
    if not found:
        return False
    _, denies = max(found)  # True is more than False: a denial wins
    return not denies


NAMES = st.sampled_from(["a", "ab", "abc", "abd", "b", "orders"])
PATTERNS = NAMES | NAMES.map(lambda name: name + "*") | st.just("*")
KINDS = st.sampled_from(["topic", "group", "broker"])
RESOURCES = st.tuples(KINDS, NAMES).map(":".join) | st.sampled_from(["log", "cluster"])
ON = st.tuples(KINDS, PATTERNS).map(":".join) | st.sampled_from(["log", "cluster"])
PRINCIPALS = st.sampled_from(["user:a", "user:b", "service:a", "oidc:https://i/a", "cert:CN=a"])
ROLES = st.sampled_from(["readers", "broker"])
NETWORKS = st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32"])
ADDRESSES = st.sampled_from(
    ["10.1.2.3", "10.9.9.9", "192.0.2.7", "2001:db8::1", "127.0.0.1", ""]  # empty: unknown
)
MOMENTS = st.sampled_from([NOW_MS - 1000, NOW_MS, NOW_MS + 1000])


@st.composite
def rules(draw: st.DrawFn) -> AccessRule:
    rights = draw(st.lists(st.sampled_from(list(Right)), min_size=1, max_size=2))
    until = draw(st.none() | MOMENTS)
    return AccessRule.model_validate(
        {
            draw(st.sampled_from(["allow", "deny"])): rights,
            "on": draw(st.lists(ON, min_size=1, max_size=3)),
            "to": draw(st.lists(PRINCIPALS | ROLES.map("role:{}".format), min_size=1, max_size=2)),
            "from": draw(st.just([]) | st.lists(NETWORKS, min_size=1, max_size=2)),
            "until": None if until is None else datetime.fromtimestamp(until / 1000, UTC),
        }
    )


DOCUMENTS = st.builds(
    PolicyDocument,
    rules=st.lists(rules(), max_size=12),
    roles=st.dictionaries(ROLES, st.lists(PRINCIPALS, max_size=3), max_size=2),
)


QUESTIONS = st.builds(
    Question, PRINCIPALS, st.sampled_from(list(Right)), RESOURCES, ADDRESSES, MOMENTS
)


def decide(policy: Policy, question: Question) -> Decision:
    principal, right, resource, address, now_ms = question
    asked = Resource.of(resource)
    return policy.decide(principal, right, asked, address=address, now_ms=now_ms)


@given(DOCUMENTS, st.lists(QUESTIONS, min_size=1, max_size=20))
def test_decisions_equal_those_of_the_model(
    document: PolicyDocument, questions: Sequence[Question]
) -> None:
    policy = Policy(document)
    for question in questions:
        decided, expected = decide(policy, question), model(document, question)
        event("allowed" if expected else "denied" if decided.rule else "no rule")
        assert decided.allowed == expected


@given(DOCUMENTS, QUESTIONS, ADDRESSES)
def test_a_decision_holds_as_long_and_as_far_as_it_says(
    document: PolicyDocument, question: Question, other_address: str
) -> None:
    policy, now_ms = Policy(document), question.now_ms
    decided = decide(policy, question)
    assert decided.good_until_ms > now_ms
    for later_ms in range(now_ms, min(decided.good_until_ms, now_ms + 3_000), 500):
        assert decide(policy, question._replace(now_ms=later_ms)).allowed == decided.allowed
    if not decided.depends_on_address:
        elsewhere = decide(policy, question._replace(address=other_address))
        assert elsewhere.allowed == decided.allowed


@given(DOCUMENTS, DOCUMENTS, st.lists(QUESTIONS, min_size=1, max_size=20))
def test_a_comparison_of_policies_misses_nothing(
    before: PolicyDocument, after: PolicyDocument, questions: Sequence[Question]
) -> None:
    for question in questions:
        found = differences(before, after, now_ms=question.now_ms)
        was, becomes = (decide(Policy(one), question).allowed for one in (before, after))
        if was != becomes:
            event("another decision")
            assert any(
                (one.principal, one.right) == (question.principal, question.right)
                for one in found.rights
            )


@given(DOCUMENTS)
def test_a_policy_does_not_differ_from_itself(document: PolicyDocument) -> None:
    assert differences(document, document, now_ms=NOW_MS).right_count == 0


def test_a_comparison_says_who_gains_and_loses_what() -> None:
    before = {"rules": [{"allow": ["produce"], "on": ["topic:a*"], "to": ["role:r"]}]}
    after = {
        "rules": [
            {"allow": ["produce"], "on": ["topic:a*"], "to": ["role:r"], "from": ["10.0.0.0/8"]},
            {"deny": ["produce"], "on": ["topic:ab"], "to": ["user:b"]},
        ]
    }
    roles = {"r": ["user:a", "user:b"]}
    found = differences(
        *(PolicyDocument.model_validate({**one, "roles": roles}) for one in (before, after)),
        now_ms=NOW_MS,
    )
    assert [(one.principal, one.on, one.before, one.after) for one in found.rights] == [
        ("user:a", "topic:a*", "allowed", "allowed from 10.0.0.0/8"),
        ("user:b", "topic:a*", "allowed", "allowed from 10.0.0.0/8"),
        ("user:b", "topic:ab", "allowed", "refused"),
    ]
    assert losers(found) == ["user:a", "user:b"]
    assert losers(found.model_copy(update={"rights": found.rights[:1], "right_count": 1})) == [
        "user:a"
    ]
    assert "principals that are not shown" in losers(found.model_copy(update={"right_count": 4}))


def test_nobody_loses_by_a_grant_even_with_conditions() -> None:
    after = {"allow": ["produce"], "on": ["topic:a"], "to": ["user:a"], "from": ["10.0.0.0/8"]}
    found = differences(
        PolicyDocument(), PolicyDocument.model_validate({"rules": [after]}), now_ms=NOW_MS
    )
    assert found.right_count == 1
    assert losers(found) == []


# --- Single cases ---------------------------------------------------------------------------------


def test_no_rule_means_no() -> None:
    decided = policy_of().decide("user:a", Right.PRODUCE, Resource.of("topic:orders"))
    assert not decided.allowed
    assert decided.rule is None
    assert decided.good_until_ms == FOREVER_MS


@pytest.mark.parametrize("first", ["allow", "deny"])
def test_a_denial_wins_among_equal_patterns_in_either_order(first: str) -> None:
    second = "deny" if first == "allow" else "allow"
    policy = policy_of(
        {first: ["consume"], "on": ["topic:orders*"], "to": ["user:a"]},
        {second: ["consume"], "on": ["topic:orders*"], "to": ["user:a"]},
    )
    assert not allows(policy, "user:a", "consume", "topic:orders-eu")


def test_a_denial_to_a_role_wins_over_an_equal_grant_to_the_principal() -> None:
    policy = policy_of(
        {"allow": ["consume"], "on": ["topic:orders"], "to": ["user:a"]},
        {"deny": ["consume"], "on": ["topic:orders"], "to": ["role:guests"]},
        guests=["user:a"],
    )
    assert not allows(policy, "user:a", "consume", "topic:orders")


def test_a_name_wins_over_a_longer_pattern_of_another_effect() -> None:
    policy = policy_of(
        {"deny": ["produce"], "on": ["topic:*", "topic:ord*"], "to": ["user:a"]},
        {"allow": ["produce"], "on": ["topic:orders"], "to": ["user:a"]},
    )
    assert allows(policy, "user:a", "produce", "topic:orders")
    assert not allows(policy, "user:a", "produce", "topic:orders2")


def test_a_groups_own_topics_follow_the_group() -> None:
    assert str(topic_resource("%RETRY%billing")) == "group:billing"
    assert str(topic_resource("%DLQ%billing")) == "group:billing"
    assert str(topic_resource("%RETRY%%DLQ%billing")) == "group:%DLQ%billing"
    assert str(topic_resource("%DLQ%%RETRY%billing")) == "group:%RETRY%billing"
    assert str(topic_resource("orders")) == "topic:orders"


@pytest.mark.parametrize(
    "topic",
    ["ERUCA_SYS_EVENTS", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"],
)
def test_topics_with_messages_of_all_others_belong_to_the_log(topic: str) -> None:
    assert str(topic_resource(topic)) == "log"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("topic:%RETRY%billing", "use group:billing"),
        ("topic:%DLQ%bill*", "use group:bill*"),
        ("topic:rmq_sys_wheel_timer", "use log"),
        ("topic:", "expected topic:NAME"),
        ("log:x", "expected log"),
        ("topic:a*b", "the beginning of names"),
        ("queue:a", "unknown kind of resource"),
    ],
)
def test_a_pattern_that_can_match_nothing_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said.replace("*", r"\*")):
        AccessRule(allow=[Right.CONSUME], on=[pattern], to=["user:a"])


@pytest.mark.parametrize("effects", [{}, {"allow": ["query"], "deny": ["query"]}])
def test_a_rule_either_grants_or_denies(effects: dict[str, list[str]]) -> None:
    with pytest.raises(ValidationError, match="one of allow and deny"):
        AccessRule.model_validate({**effects, "on": ["log"], "to": ["user:a"]})


@pytest.mark.parametrize(
    ("text", "resource"),
    [("topic:orders", (ResourceKind.TOPIC, "orders")), ("log", (ResourceKind.LOG, ""))],
)
def test_resources_are_read_as_they_are_written(text: str, resource: tuple[str, str]) -> None:
    assert Resource.of(text) == resource
    assert str(Resource.of(text)) == text


def test_a_refusal_says_the_missing_grant_and_a_grant_its_rule() -> None:
    policy = policy_of(
        {"allow": ["produce"], "on": ["topic:orders"], "to": ["user:checkout"], "from": ["::1"]}
    )
    resource = Resource.of("topic:orders")
    refused = policy.explain("user:checkout", Right.PRODUCE, resource, address="127.0.0.1")
    assert not refused.allowed
    assert refused.rule is None
    assert refused.fix == "grant produce on topic:orders to user:checkout"
    allowed = policy.explain("user:checkout", Right.PRODUCE, resource, address="::1")
    assert allowed.allowed
    assert allowed.rule == "grant produce on topic:orders to user:checkout from ::1"
    assert allowed.fix is None


def test_every_predefined_role_has_rules_and_a_purpose() -> None:
    assert {f"role:{role}" for role in PREDEFINED_ROLES} == {
        holder for rule in PREDEFINED_RULES for holder in rule.to
    }


def test_an_ipv4_client_of_a_socket_for_both_families_is_in_its_network() -> None:
    policy = policy_of(
        {"allow": ["query"], "on": ["log"], "to": ["user:a"], "from": ["10.0.0.0/8"]}
    )
    assert allows(policy, "user:a", "query", "log", address="::ffff:10.0.0.1")
    assert not allows(policy, "user:a", "query", "log", address="nonsense")


def test_a_denial_to_a_network_applies_to_an_unknown_address() -> None:
    policy = policy_of(
        {"allow": ["query"], "on": ["log"], "to": ["user:a"]},
        {"deny": ["query"], "on": ["log"], "to": ["user:a"], "from": ["10.0.0.0/8"]},
    )
    assert allows(policy, "user:a", "query", "log", address="192.168.1.1")
    assert not allows(policy, "user:a", "query", "log", address="10.1.1.1")
    assert not allows(policy, "user:a", "query", "log", address="")
