"""Request targets: the path, query and host that a request names, and their form.

Source: RFC 9112 section 3.2, RFC 3986 section 2.1.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from eruca.contract.errors import RequestError, ValidationError
from eruca.contract.errors.shown import shown

_ABSOLUTE: Final = re.compile(rb"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/?]*)")
_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ESCAPED_SLASH: Final = re.compile(rb"%2[Ff]")
_HOW_TO_ESCAPE: Final = (
    "percent-encode special characters as UTF-8 (%XX), and a percent sign as %25"
)


def host_of_target(method: str, target: bytes) -> bytes | None:
    """Return the host in *target*; None if it is a path, as usual.

    Raises:
        RequestError: It is neither a path nor an ``http://`` URL nor the ``*`` of OPTIONS.
    """
    if b"#" in target:
        raise RequestError(
            "a request's target has no fragment", fix="remove the # and everything after it"
        )
    if target.startswith(b"/") or (target == b"*" and method == "OPTIONS"):
        return None
    absolute = _ABSOLUTE.match(target)
    if absolute is None or absolute["scheme"].lower() != b"http":
        raise RequestError(
            "expected a path or an http:// URL as the request's target",
            fix="request a path, such as /v1/status, over plain HTTP",
        )
    return absolute["host"]


def check_path(path: bytes) -> None:
    """Refuse a malformed raw path.

    Raises:
        RequestError: A percent sign is not part of an escape, or the escapes are not UTF-8.
    """
    if b"%" in path:
        _check_escapes(path, "path")


def has_escaped_slash(path: bytes) -> bool:
    """Return whether a raw path has a slash inside a segment; decoded, it would split it."""
    return _ESCAPED_SLASH.search(path) is not None


def escaped_slash(path: bytes) -> ValidationError:
    """Return the error for a raw path with a slash inside a name."""
    segment = next(filter(_ESCAPED_SLASH.search, path.split(b"/")))
    name = shown(segment.decode("ascii", "replace"))
    return ValidationError.at(
        "/path",
        f"{name} contains a slash (%2F), and no name at this path may",
        fix="use a name without a slash; do not escape a slash that separates segments",
    )


def check_query(query: bytes) -> None:
    """Refuse a malformed raw query.

    Raises:
        RequestError: A percent sign is not part of an escape, or the escapes are not UTF-8.
    """
    if b"%" in query:
        _check_escapes(query, "query")


def _check_escapes(raw: bytes, part: str) -> None:
    broken = _BROKEN_ESCAPE.search(raw)
    if broken is not None:
        found = raw[broken.start() : broken.start() + 3].decode("latin-1")
        raise RequestError(
            f"expected two hexadecimal digits after each % of the {part}, found {found!r}",
            fix=_HOW_TO_ESCAPE,
        )
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise RequestError(f"the escapes in the {part} are not UTF-8", fix=_HOW_TO_ESCAPE) from None
