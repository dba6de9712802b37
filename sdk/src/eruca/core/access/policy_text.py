"""Policies as text: parse a file of rules, and change its keys without touching the rest.

A file is written by people, with comments and an order of their own. So keys are added and removed
as text, table by table, and the result is parsed: nothing but the keys may differ.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from eruca.contract.access import PolicyDocument, StoredKey
from eruca.contract.errors import ClientError

FAULT_COUNT_MAX: Final = 10  # faults in one text
_BYTE_ORDER_MARK: Final = "\ufeff"  # which some editors write
_TABLE: Final = re.compile(r"^\s*\[", re.MULTILINE)
_KEY_TABLE: Final = re.compile(r"^\s*\[\[\s*keys\s*\]\][^\n]*\n?", re.MULTILINE)


class InvalidPolicyError(ClientError):
    """The text is no policy; the detail says where, and what was expected."""

    code = "invalid-policy"
    title = "The text is no policy"


def parse_policy(text: str) -> PolicyDocument:
    """Parse and check a policy.

    Raises:
        InvalidPolicyError: The text is no TOML, or no policy.
    """
    try:
        content = tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except tomllib.TOMLDecodeError as error:
        raise InvalidPolicyError(f"not TOML: {error}") from error
    return _checked_policy(content)


def parse_kept_policy(text: str) -> PolicyDocument:
    """Parse and check a policy in JSON, or the one in a copy that a service keeps.

    Raises:
        InvalidPolicyError: The text is no JSON, or no policy.
    """
    try:
        content = json.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except ValueError as error:
        raise InvalidPolicyError(f"not JSON: {error}") from error
    is_kept = isinstance(content, dict) and "policy" in content
    return _checked_policy(content["policy"] if is_kept else content)


def _checked_policy(content: object) -> PolicyDocument:
    try:
        return PolicyDocument.model_validate(content)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        said = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the file'}: " + _said(fault)
            for fault in faults[:FAULT_COUNT_MAX]
        )
        more = len(faults) - FAULT_COUNT_MAX
        raise InvalidPolicyError(said + (f"; and {more} more" if more > 0 else "")) from error


def _said(fault: ErrorDetails) -> str:
    """Return what is wrong, and for a name that there is not, which there are."""
    if fault["type"] != "extra_forbidden":
        return fault["msg"].removeprefix("Value error, ")
    if len(fault["loc"]) > 1:
        return "there is no such name; eruca auth schema lists those that there are"
    return f"there is no such name; there are {', '.join(PolicyDocument.model_fields)}"


def with_key(text: str, key: StoredKey) -> str:
    """Return the policy *text* with one more key, at its end.

    Raises:
        InvalidPolicyError: *text* is no policy, or cannot be extended as text.
    """
    before = parse_policy(text)
    lines = ["[[keys]]", f'id = "{key.id}"', f'principal = "{key.principal}"']
    lines.append(f'sha256 = "{key.sha256}"')
    lines += [
        f"{name} = {value.isoformat()}"
        for name in ("created_at", "expires_at")
        if (value := getattr(key, name)) is not None
    ]
    space = "\n" if text.endswith("\n") or not text else "\n\n"
    after = f"{text}{space}" + "\n".join(lines) + "\n"
    return _checked(after, before.model_copy(update={"keys": [*before.keys, key]}))


def with_expiry(text: str, key: StoredKey) -> str:
    """Return the policy *text* in which the key of the same id is *key*.

    Raises:
        InvalidPolicyError: *text* is no policy, or its keys cannot be changed as text.
    """
    return with_key(without_key(text, key.id), key)


def without_key(text: str, key_id: str) -> str:
    """Return the policy *text* without a key.

    Raises:
        InvalidPolicyError: *text* is no policy, has no such key, or cannot be changed as text.
    """
    before = parse_policy(text)
    kept = [key for key in before.keys if key.id != key_id]
    if len(kept) == len(before.keys):
        known = ", ".join(key.id for key in before.keys) or "none"
        raise InvalidPolicyError(f"there is no key {key_id}; keys: {known}")
    for table in _KEY_TABLE.finditer(text):
        following = _TABLE.search(text, table.end())
        end = len(text) if following is None else following.start()
        if re.search(rf"^\s*id\s*=\s*[\"']{key_id}[\"']", text[table.end() : end], re.MULTILINE):
            after = text[: table.start()] + text[end:].lstrip("\n")
            return _checked(after, before.model_copy(update={"keys": kept}))
    raise InvalidPolicyError(f"key {key_id} has no [[keys]] table of its own; change it by hand")


def _checked(text: str, expected: PolicyDocument) -> str:
    """Return *text*, which must be the policy *expected*, the order of its keys aside."""

    def sorted_keys(document: PolicyDocument) -> list[StoredKey]:
        return sorted(document.keys, key=lambda key: key.id)

    found = parse_policy(text)
    is_same = found.model_copy(update={"keys": []}) == expected.model_copy(update={"keys": []})
    if not is_same or sorted_keys(found) != sorted_keys(expected):
        raise InvalidPolicyError("its keys cannot be changed as text; change it by hand")
    return text
