"""Entity tags: the answers that a client has already, from its ``If-None-Match``.

Source: RFC 9110 sections 8.8.3 and 13.1.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

ANY_TAG: Final = "*"  # matches any current answer
_TAGS: Final = re.compile(r'\*|"[^"]*"')  # weak tags compare like strong ones here


def known_tags(if_none_match: str | None) -> frozenset[str]:
    """Parse the tags of a request's header; they keep their quotes and lose the weak mark."""
    return frozenset(_TAGS.findall(if_none_match or ""))


def is_known(tag: str, known: AbstractSet[str]) -> bool:
    """Return whether *known*, a client's tags, include this quoted *tag*."""
    return tag in known or ANY_TAG in known


def tagged_answer(
    body: bytes | str | None,
    tag: str,
    *,
    status: int = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an answer in JSON with its tag; without a *body*, the client has it already (304)."""
    every = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    if body is None:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=every)
    return Response(body, status_code=status, media_type="application/json", headers=every)
