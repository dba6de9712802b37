"""The names of one request of a caller with a namespace, and those of its answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from eruca.contract.errors import (
    ErucaError,
    ForbiddenError,
    MalformedBodyError,
)
from eruca.contract.errors.shown import SHOWN_SIZE_MAX, shown
from eruca.contract.limits import GROUP_SIZE_MAX, JSON_BODY_SIZE_MAX, TOPIC_SIZE_MAX
from eruca.contract.names import (
    DEAD_LETTER_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    group_of_derived,
    is_derived_topic,
)
from eruca.contract.wire import JSON_MEDIA_TYPE, OCTETS_MEDIA_TYPE, RECORDS_MEDIA_TYPE
from eruca.core.access.namespaces import Namespace
from eruca_access.namespaces.json_names import Change, Changes, OutsideError, changed, parsed
from eruca_access.namespaces.record_names import changed_batch, changed_pull
from eruca_chassis.requests.json_members import parse_json

UNSUPPORTED: Final = {
    "listExportTopics": "an export's rows have whole names",
    "planExport": "an export's rows have whole names",
    "exportRecords": "an export's rows have whole names",
    "putWebhook": "a webhook gets whole names",
}
"""Operations that a caller with a namespace may not use, and why."""
ANSWER_TYPES: Final = frozenset({JSON_MEDIA_TYPE, RECORDS_MEDIA_TYPE, OCTETS_MEDIA_TYPE})
"""The media types of answers in which names can be changed, or that have none."""

_SHOWN_SIZES: Final = (SHOWN_SIZE_MAX, SHOWN_SIZE_MAX - 1)  # of a long name: alone, or in quotes
_IN_NAME: Final = r"[A-Za-z0-9_%|-]"
DETAIL: Final = "detail"  # the member of an outcome that says why, in words
PROBLEM: Final = "problem"  # the member of an answer with one outcome of several
_ABOUT_LENGTH: Final = re.compile(r"too long|of length|at most \d+ characters")
_ENCODE: Final = msgspec.json.Encoder().encode
_ABOUT_RIGHTS: Final = frozenset({ForbiddenError.code})


class RequestNaming:
    """The names of one request, and of its answer.

    Args:
        namespace: The caller's.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._said: dict[str, str] = {}  # whole name → the one that the request has
        whole = Changes.to_whole(namespace)
        self._to_whole = Changes(*(self._noting(change) for change in whole))
        self._to_short = Changes.to_short(namespace)

    def _noting(self, change: Change) -> Change:
        def noted(name: str) -> str | None:
            other = change(name)
            if other is not None and other != name:
                self._note(other, name)
            return other

        return noted

    def _note(self, whole: str, said: str) -> None:
        """Note a name that the request has; a problem may name its group, or the group's topics."""
        if is_derived_topic(whole):
            whole, said = group_of_derived(whole), group_of_derived(said)
        for derivation in ("", RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX):
            self._said[derivation + whole] = derivation + said

    def refusal(self, operation: str) -> ErucaError | None:
        """Return why the caller may not use an operation; None: its names can be changed."""
        reason = UNSUPPORTED.get(operation)
        if reason is None:
            return None
        name = self._namespace.name
        return ForbiddenError(
            f"{operation} is not for callers with a namespace, such as {name}: {reason}",
            fix="use a principal without a namespace",
        )

    def parameter(self, name: str, value: str) -> str | None:
        """Return the whole name in a parameter of the path or the query; None: it has no name."""
        change = self._to_whole.of(name)
        return None if change is None else change(value)

    def body(self, media_type: str, body: bytes) -> bytes:
        """Return a request's body with whole names.

        What cannot be parsed, or is too large for any operation, stays as it is. Its names are
        outside the namespace, so nothing can be done with them.
        """
        if media_type == OCTETS_MEDIA_TYPE or not body:
            return body
        if media_type == RECORDS_MEDIA_TYPE:
            return changed_batch(body, self._to_whole)
        if len(body) > JSON_BODY_SIZE_MAX:
            return body
        try:
            parse_json(body)  # refuses a name that is given twice
            value = parsed(body)
        except (ValueError, RecursionError, MalformedBodyError):
            return body
        return _ENCODE(changed(value, self._to_whole))

    def answer(self, media_type: str, body: bytes) -> bytes:
        """Return an answer's body with short names; entries outside the namespace are left out.

        Raises:
            ErucaError: The answer itself is about something outside, or of an unknown type.
        """
        if media_type == OCTETS_MEDIA_TYPE or not body:
            return body
        if media_type == RECORDS_MEDIA_TYPE:
            return changed_pull(body, self._to_short)
        name = self._namespace.name
        if media_type not in ANSWER_TYPES:
            raise ForbiddenError(
                f"{media_type} is not for callers with a namespace, such as {name}",
                fix="accept application/json",
            )
        try:
            return _ENCODE(self._with_said(changed(parsed(body), self._to_short)))
        except OutsideError:
            raise ForbiddenError(
                f"the answer names a topic or a group outside the namespace {name}",
                fix="use a principal without a namespace",
            ) from None

    def problem(self, body: bytes) -> bytes:
        """Return a problem document with the names that the request has.

        A missing right keeps whole names, as rules do.
        """
        return _ENCODE(self._problem(parsed(body)))

    def _with_said(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return an answer with short names in its problems, and in details about a name beside."""
        if isinstance(value, list):
            return [self._with_said(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        made = {
            name: self._problem(inner)
            if name == PROBLEM and isinstance(inner, dict)
            else self._with_said(inner)
            for name, inner in value.items()
        }
        if isinstance(made.get(DETAIL), str):
            whole = Changes.to_whole(self._namespace)
            beside = {
                other: text
                for name, text in made.items()
                if isinstance(text, str)
                and (change := whole.of(name)) is not None
                and (other := change(text)) is not None
            }
            made[DETAIL] = (
                _replaced(made[DETAIL], _any_of(beside), beside) if beside else made[DETAIL]
            )
        return made

    def _problem(self, document: dict[str, Any]) -> dict[str, Any]:
        if document.get("code") in _ABOUT_RIGHTS or not self._said:
            return document
        is_about_length = _ABOUT_LENGTH.search(document.get("detail") or "") is not None
        if is_about_length and any(map(_is_too_long, self._said)):
            size = len(self._namespace.name)
            document["fix"] = (
                f"use a topic's name of up to {TOPIC_SIZE_MAX - size} characters, and a group's of "
                f"up to {GROUP_SIZE_MAX - size}: the namespace before it counts as well"
            )
        said = dict(self._said)
        for size in _SHOWN_SIZES:
            said |= {shown(one, size): shown(short, size) for one, short in self._said.items()}
        replaced: dict[str, Any] = _replaced(document, _any_of(said), said)
        return replaced


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first))
    return re.compile(f"(?<!{_IN_NAME})(?:{either})(?!{_IN_NAME})")


def _is_too_long(whole: str) -> bool:
    return len(whole) > GROUP_SIZE_MAX


def _replaced(value: Any, whole: re.Pattern[str], short: dict[str, str]) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return whole.sub(lambda found: short[found[0]], value)
    if isinstance(value, dict):
        return {name: _replaced(inner, whole, short) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, whole, short) for inner in value]
    return value
