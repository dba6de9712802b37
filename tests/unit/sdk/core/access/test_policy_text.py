"""Policies as text: keys come and go, and everything else stays as its author wrote it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from eruca.contract.access import StoredKey
from eruca.core.access.policy_text import (
    InvalidPolicyError,
    parse_kept_policy,
    parse_policy,
    with_expiry,
    with_key,
    without_key,
)

TEXT = """\
# Ours.
rules = [
  { allow = ["produce"], on = ["topic:orders"], to = ["user:shop"] },  # the shop
]

[roles]
administrator = ["user:ann"]  # only her
"""
ENDS = datetime(2027, 1, 1, tzinfo=UTC)


def key(key_id: str, expires_at: datetime | None = None) -> StoredKey:
    return StoredKey(id=key_id, principal="user:ann", sha256="ab" * 32, expires_at=expires_at)


def test_a_byte_order_mark_is_no_mistake_and_stays() -> None:
    marked = "\ufeff" + TEXT
    assert parse_policy(marked) == parse_policy(TEXT)
    assert with_key(marked, key("aaaa")).startswith(marked)
    assert parse_kept_policy("\ufeff{}") == parse_kept_policy("{}")


def test_keys_are_added_at_the_end_and_removed_again() -> None:
    one = with_key(TEXT, key("aaaa"))
    two = with_key(one, key("bbbb", ENDS))
    assert two.startswith(TEXT)
    assert parse_policy(two).keys == [key("aaaa"), key("bbbb", ENDS)]
    assert parse_policy(without_key(two, "aaaa")).keys == [key("bbbb", ENDS)]
    assert without_key(without_key(two, "bbbb"), "aaaa").strip() == TEXT.strip()


def test_a_key_gets_an_end() -> None:
    text = with_key(with_key(TEXT, key("aaaa")), key("bbbb"))
    changed = parse_policy(with_expiry(text, key("aaaa", ENDS)))
    assert {k.id: k.expires_at for k in changed.keys} == {"aaaa": ENDS, "bbbb": None}


def test_a_first_key_makes_a_file() -> None:
    assert parse_policy(with_key("", key("aaaa"))).keys == [key("aaaa")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules = 1", "rules: Input should be a valid list"),
        ("[", "not TOML"),
        ("[[rules]]\nallow = ['fly']\non = ['log']\nto = ['user:a']", "rules.0.allow.0"),
        ("[[rules]]\nallow = ['query']\non = ['log']\nto = ['ann']", "expected user:NAME"),
        ("rule = []", "rule: there is no such name; there are roles, rules, keys, issuers"),
        ('[[keys]]\nname = "x"', "name: there is no such name; eruca auth schema"),
        ("[[keys]]\nid = 'aaaa'\nprincipal = 'user:a'\nsha256 = 'secret'", "keys.0.sha256"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_no_secret(text: str, said: str) -> None:
    with pytest.raises(InvalidPolicyError) as failed:
        parse_policy(text)
    assert said in failed.value.detail
    assert "secret" not in failed.value.detail


def test_two_keys_of_one_id_are_a_mistake() -> None:
    text = with_key(TEXT, key("aaaa"))
    with pytest.raises(InvalidPolicyError, match="several keys have one id: aaaa"):
        with_key(text, key("aaaa"))


def test_keys_in_another_form_are_left_to_their_author() -> None:
    text = f'keys = [{{ id = "aaaa", principal = "user:a", sha256 = "{"ab" * 32}" }}]\n'
    with pytest.raises(InvalidPolicyError):
        with_key(text, key("bbbb"))
    with pytest.raises(InvalidPolicyError, match="change it by hand"):
        without_key(text, "aaaa")


def test_a_key_that_does_not_exist_is_not_removed() -> None:
    with pytest.raises(InvalidPolicyError, match="there is no key cccc; keys: none"):
        without_key(TEXT, "cccc")


ISSUER = """
[[issuers]]
name = "corp"
issuer = "https://login.example/"
audience = "eruca"
"""


def test_issuers_stay_when_a_key_is_added() -> None:
    key = StoredKey(id="abcd", principal="user:a", sha256="0" * 64)

    text = with_key(ISSUER, key)

    assert parse_policy(text).issuers == parse_policy(ISSUER).issuers
    assert parse_policy(without_key(text, "abcd")) == parse_policy(ISSUER)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("https://login.example/", "http://login.example/"), "expected https://HOST/PATH"),
        (("https://login.example/", "https://u:p@login.example/"), "expected https://HOST/PATH"),
        (("https://login.example/", "https://login.example/#x"), "expected https://HOST/PATH"),
        (("https://login.example/", "https://[::1"), "expected https://HOST/PATH"),
        (("https://login.example/", "login.example"), "expected https://HOST/PATH"),
        (('"corp"', '"a/b"'), "issuers.0.name"),
        (('audience = "eruca"', ""), "issuers.0.audience"),
        (('audience = "eruca"', 'audience = ""'), "issuers.0.audience"),
        (('audience = "eruca"', 'audience = "e"\nalgorithms = ["none"]'), "issuers.0.algorithms"),
    ],
)
def test_an_issuer_that_is_not_safe_is_refused(change: tuple[str, str], fault: str) -> None:
    with pytest.raises(InvalidPolicyError, match=re.escape(fault)):
        parse_policy(ISSUER.replace(*change))


def test_each_issuer_stands_once() -> None:
    with pytest.raises(InvalidPolicyError, match="several issuers have one name: corp"):
        parse_policy(ISSUER + ISSUER.replace("login", "other"))
    with pytest.raises(InvalidPolicyError, match="several issuers have one issuer: https"):
        parse_policy(ISSUER + ISSUER.replace("corp", "other"))
