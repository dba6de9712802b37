"""Tag expressions: what the broker lets pass by hash, and what the client then keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.hashing import tags_code
from eruca.core.filters.tag_expression import Subscription, TagExpressionError, parse_tag_expression
from support.rocketmq_rules import parse_subscription

TAGS = st.text(st.characters(codec="utf-8", exclude_characters="|"), min_size=1).filter(
    lambda tag: tag == tag.strip("".join(map(chr, range(33)))) and tag != "*"
)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_is_let_through(expression: str | None) -> None:
    subscription = parse_tag_expression(expression)

    assert subscription == Subscription("*")
    assert subscription.tag_codes is None
    assert subscription.matches_code(tags_code("any"))
    assert subscription.matches_tag("any")
    assert subscription.matches_tag(None)


@given(st.lists(TAGS, min_size=1), TAGS)
def test_a_message_is_delivered_if_its_tag_is_listed(tags: list[str], tag: str) -> None:
    subscription = parse_tag_expression(" || ".join(tags))

    delivered = subscription.matches_code(tags_code(tag)) and subscription.matches_tag(tag)

    assert delivered == (tag in tags)


def test_tags_of_one_hash_are_told_apart_by_the_client() -> None:
    subscription = parse_tag_expression("Aa")

    assert subscription.matches_code(tags_code("BB"))
    assert not subscription.matches_tag("BB")


def test_a_message_without_a_tag_matches_no_list() -> None:
    assert not parse_tag_expression("TagA").matches_tag(None)


def test_blank_parts_are_dropped() -> None:
    assert parse_tag_expression("TagA ||  || TagB ||").tags == {"TagA", "TagB"}


@pytest.mark.parametrize("expression", [" ", "|| ||"])
def test_nothing_but_blanks_lets_nothing_through(expression: str) -> None:
    subscription = parse_tag_expression(expression)

    assert subscription.tag_codes == frozenset()
    assert not subscription.matches_code(0)


def test_a_star_among_tags_is_a_tag() -> None:
    assert parse_tag_expression("TagA || *").tag_codes == frozenset({tags_code("TagA"), 42})


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_an_error(expression: str) -> None:
    with pytest.raises(TagExpressionError, match="names no tag") as caught:
        parse_tag_expression(expression)
    assert caught.value.code == "expression_split"
    assert str(caught.value) == f"{expression!r} names no tag"


def test_only_ascii_blanks_are_trimmed() -> None:
    assert parse_tag_expression("\t\0TagA\x1f ||!\u3000TagB").tags == {"TagA", "!\u3000TagB"}


def test_a_code_is_compared_in_its_low_32_bits() -> None:
    code = tags_code("polygenelubricants")
    assert code == -(2**31)

    assert parse_tag_expression("polygenelubricants").matches_code(2**31)


@pytest.mark.parametrize("kind", [None, "TAG"])
def test_a_subscription_is_of_tags_unless_said_otherwise(kind: str | None) -> None:
    assert parse_subscription("TagA", kind) == parse_tag_expression("TagA")


def test_an_expression_of_another_type_is_kept_as_it_is() -> None:
    subscription = parse_subscription("a > 1 || b", "SQL92")

    assert subscription == Subscription("a > 1 || b", expression_type="SQL92")
    assert subscription.tag_codes is None
    assert subscription.matches_code(1)


@pytest.mark.parametrize("expression", [None, ""])
def test_another_type_needs_an_expression(expression: str | None) -> None:
    with pytest.raises(TagExpressionError, match="SQL92") as caught:
        parse_subscription(expression, "SQL92")
    assert caught.value.code == "expression_empty"
