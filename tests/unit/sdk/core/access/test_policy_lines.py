"""Policies as lines: what two of them differ by, whatever the order of their rules."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.access import AccessRule, PolicyDocument, Right, StoredKey
from eruca.core.access.policy_lines import line_differences, policy_lines


def rule(topic: str, *rights: Right) -> AccessRule:
    return AccessRule(allow=list(rights), on=[f"topic:{topic}"], to=["user:shop"])


ORDERS = rule("orders", Right.PRODUCE)
RETURNS = rule("returns", Right.CONSUME)
KEY = StoredKey(id="aaaa", principal="user:ann", sha256="ab" * 32)


def test_a_changed_entry_is_a_line_less_and_a_line_more() -> None:
    ends = datetime(2027, 1, 1, tzinfo=UTC)
    before = PolicyDocument(roles={"administrator": ["user:ann"]}, rules=[ORDERS], keys=[KEY])
    after = PolicyDocument(
        roles={"administrator": ["user:ann", "user:bob"]},
        rules=[ORDERS, RETURNS],
        keys=[KEY.model_copy(update={"expires_at": ends})],
    )

    found = line_differences(before, after)

    assert [sign for sign, _ in found.lines] == ["-", "+", "+", "-", "+"]
    assert found.lines[0][1].endswith(": user:ann")
    assert found.lines[1][1].endswith(": user:ann, user:bob")
    assert found.lines[2] == ("+", "grant consume on topic:returns to user:shop")
    assert found.lines[4] == ("+", f"key aaaa of user:ann until {ends.isoformat()}")
    assert found.same_count == 1
    assert not any("ab" * 32 in line for _, line in found.lines)


@given(st.lists(st.sampled_from([ORDERS, RETURNS, rule("stock", Right.QUERY)]), max_size=6))
def test_the_order_of_rules_is_no_difference_and_their_number_is(rules: list[AccessRule]) -> None:
    document = PolicyDocument(rules=rules)
    turned = PolicyDocument(rules=[*reversed(rules)])

    assert line_differences(document, turned).lines == ()
    assert line_differences(document, turned).same_count == len(rules)
    more = PolicyDocument(rules=[*rules, ORDERS])
    assert line_differences(document, more).lines == (("+", str(ORDERS)),)
    assert line_differences(more, document).lines == (("-", str(ORDERS)),)


def test_a_policy_is_shown_in_the_words_of_explanations() -> None:
    document = PolicyDocument.model_validate(
        {
            "roles": {"shops": []},
            "rules": [ORDERS],
            "quotas": [{"to": ["role:shops"], "connections_max": 5}],
            "namespaces": [{"name": "team-a-", "to": ["user:eve"]}],
        }
    )
    assert policy_lines(document) == [
        "role:shops: nobody",
        "grant produce on topic:orders to user:shop",
        "quota: connections_max 5 for role:shops",
        "namespace: team-a- for user:eve",
    ]
