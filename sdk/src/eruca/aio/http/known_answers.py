"""A cache of answer heads, compared byte for byte, so that each head is parsed only once.

A broker answers most sends alike: with a short receipt, and with few different heads but for the
request's id. At the beginning of an answer, parsing depends only on the head's bytes. So a cached
result holds for the same bytes, whichever server sends them. The id of each answer is cut out of
its head, and put in its place among the headers. An id in an unusual form is left to the parser.

The cache covers only answers that arrive in one piece and contain their length. Answers to pulls
are not cached: they are long, and their lengths and therefore their heads rarely repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eruca.aio.http.transport import HttpResponse

HEAD_END: Final = b"\r\n\r\n"
KNOWN_ANSWERS_MAX: Final = 256
KNOWN_HEAD_SIZE_MAX: Final = 1_024  # bytes
KNOWN_BODY_SIZE_MAX: Final = 1_024  # bytes of the body after it
_ID_NAME: Final = "x-request-id"
_ID_LINE: Final = f"\r\n{_ID_NAME}: ".encode()


class _Known(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body_size: int  # bytes


class KnownAnswers:
    """The known heads of a client, over all its connections."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bool], _Known] = {}  # by head, and whether it has an id

    def __len__(self) -> int:
        return len(self._known)

    def read(self, data: bytes) -> HttpResponse | None:
        """Return the answer in *data* if it is complete and its head is known; else None."""
        body_at = data.find(HEAD_END, 0, KNOWN_HEAD_SIZE_MAX) + len(HEAD_END)
        head, identity = _without_id(data[:body_at])
        known = self._known.get((head, identity is None))
        if known is None or body_at + known.body_size != len(data):
            return None
        headers = known.headers if identity is None else {**known.headers, _ID_NAME: identity}
        return HttpResponse(known.status, headers, data[body_at:])

    def learn(self, data: bytes, answer: HttpResponse) -> None:
        """Add the head in *data*, which was parsed to *answer*, if it may repeat."""
        body_at = data.find(HEAD_END, 0, KNOWN_HEAD_SIZE_MAX) + len(HEAD_END)
        headers, body_size = answer.headers, len(answer.body)
        whole = data[:body_at]
        head, identity = _without_id(whole)
        is_plain = (
            body_size <= KNOWN_BODY_SIZE_MAX
            and body_at + body_size == len(data)
            and headers.get("content-length") == str(body_size)
            and "transfer-encoding" not in headers
            # One line each and no empty line before; else the parser may have seen the end
            # elsewhere.
            and whole.count(b"\n") == whole.count(b"\r\n") == len(headers) + 2
            and headers.get(_ID_NAME) == identity
            and head.startswith(b"HTTP/1.1 %d" % answer.status)
        )
        if not is_plain:
            return
        if len(self._known) >= KNOWN_ANSWERS_MAX:
            self._known.clear()
        self._known[head, identity is None] = _Known(answer.status, headers, body_size)


def _without_id(head: bytes) -> tuple[bytes, str | None]:
    """Return a head without the request's id, and the id; None: it has none, or an unusual one."""
    start = head.find(_ID_LINE) + len(_ID_LINE)
    if start < len(_ID_LINE):
        return head, None
    end = head.find(b"\r", start)
    identity = head[start:end]
    if not identity.isalnum():
        return head, None
    return head[:start] + head[end:], identity.decode()
