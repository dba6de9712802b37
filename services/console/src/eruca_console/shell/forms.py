"""Forms that pages send: small, of known fields, and with the token of their page."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from fastapi import Request

from eruca.contract.errors import (
    CrossSiteError,
    MalformedBodyError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca_console.sessions.callers import Caller

MEDIA_TYPE: Final = "application/x-www-form-urlencoded"
TOKEN_FIELD: Final = "csrf"
FIELD_COUNT_MAX: Final = 1_100


async def form_of(request: Request, caller: Caller) -> dict[str, list[str]]:
    """Return a form's fields, each with its values.

    Raises:
        UnsupportedMediaTypeError: The body is no form.
        MalformedBodyError: It is not well-formed.
        CrossSiteError: It has no token of this caller: another site's page may have sent it.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != MEDIA_TYPE:
        raise UnsupportedMediaTypeError(
            f"expected {MEDIA_TYPE}, found {given or 'no content type'}",
            fix="use the form of the page",
        )
    try:
        pairs = parse_qsl(
            (await request.body()).decode(),
            keep_blank_values=True,
            strict_parsing=False,
            errors="strict",
            max_num_fields=FIELD_COUNT_MAX,
        )
    except ValueError as error:
        raise MalformedBodyError(f"the form is not well-formed: {error}") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    token = fields.pop(TOKEN_FIELD, [""])[0]
    if not hmac.compare_digest(token.encode(), caller.csrf_token.encode()):
        raise CrossSiteError(
            "the form is not from a page of this session", fix="reload the page, and try again"
        )
    return fields


def local_path(text: str) -> str:
    """Return *text* if it is a path of this service, else the overview's.

    Otherwise a link to the log-in could lead to another site afterwards.
    """
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_path and text.isprintable() else "/overview"


def text_of(fields: Mapping[str, Sequence[str]], name: str) -> str:
    """Return the value of a form's field without blanks around it; empty: it is missing."""
    return next(iter(fields.get(name, [""])), "").strip()


def check_typed(fields: Mapping[str, Sequence[str]], word: str) -> None:
    """Check that the person has typed *word* to confirm an act.

    Raises:
        ValidationError: The field ``typed`` says something else; nothing was done.
    """
    typed = text_of(fields, "typed")
    if typed != word:
        raise ValidationError(
            f"typed: expected {word}, found {typed[:64]!r}; nothing was done",
            fix=f"go back, and type {word}",
        )
