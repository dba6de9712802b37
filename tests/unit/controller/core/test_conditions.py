"""If-Match and If-None-Match, as RFC 9110 writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import PreconditionRequiredError, ValidationError
from eruca_controller.core.conditions import Condition, condition_of, known_versions

TAGS = st.lists(
    st.text(
        st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"'), max_size=8
    ),
    min_size=1,
    max_size=4,
)


@given(TAGS, st.sampled_from([",", ", ", " ,\t"]))
def test_each_tag_of_a_list_is_read(tags: list[str], separator: str) -> None:
    header = separator.join(f'"{tag}"' for tag in tags)

    assert condition_of(header) == Condition(creates=False, versions=frozenset(tags))
    assert known_versions(header) == frozenset(tags)


@pytest.mark.parametrize(
    "header", ["", " ", "1-0", '"1-0', '1-0"', '"1-0" "2-0"', '"a"b', '"a", b']
)
def test_a_malformed_tag_is_refused_with_the_form_that_is_expected(header: str) -> None:
    for read in (condition_of, known_versions):
        with pytest.raises(ValidationError, match="with its double quotes"):
            read(header)


def test_a_weak_tag_is_for_readers_only() -> None:
    assert known_versions('W/"1-0"') == frozenset(["1-0"])
    with pytest.raises(ValidationError, match="weak tag"):
        condition_of('"2-0", W/"1-0"')


def test_a_star_is_any_version_for_readers_and_a_group_that_exists_for_changes() -> None:
    assert known_versions("*") is None
    assert known_versions(None) == frozenset()
    matched, created = condition_of(" * "), condition_of(None, "*")

    assert matched.allows("1-0")
    assert not matched.allows(None)
    assert created.allows(None)
    assert not created.allows("1-0")


def test_a_version_allows_itself_and_no_missing_group() -> None:
    condition = condition_of('"1-0"')

    assert condition.allows("1-0")
    assert not condition.allows("2-0")
    assert not condition.allows(None)


def test_one_condition_is_needed_and_not_two() -> None:
    with pytest.raises(PreconditionRequiredError):
        condition_of(None, None)
    with pytest.raises(ValidationError, match="one condition"):
        condition_of('"1-0"', "*")
    with pytest.raises(ValidationError, match=r"expected \*"):
        condition_of(None, '"1-0"')
