"""A cache of answer heads, compared byte for byte, so that each head is parsed only once.

A broker answers most sends alike: with few different heads and a short receipt. At the beginning of
an answer, parsing depends only on the head's bytes. So a cached result holds for the same bytes,
whichever server sends them.

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


class _Known(NamedTuple):
    status: int
    headers: Mapping[str, str]
    size: int  # bytes of the whole answer


class KnownAnswers:
    """The known heads of a client, over all its connections."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def read(self, data: bytes) -> HttpResponse | None:
        """Return the answer in *data* if it is complete and its head is known; else None."""
        body_at = data.find(HEAD_END, 0, KNOWN_HEAD_SIZE_MAX) + len(HEAD_END)
        known = self._known.get(data[:body_at])
        if known is None or known.size != len(data):
            return None
        return HttpResponse(known.status, known.headers, data[body_at:])

    def learn(self, data: bytes, answer: HttpResponse) -> None:
        """Add the head in *data*, which was parsed to *answer*, if it may repeat."""
        body_at = data.find(HEAD_END, 0, KNOWN_HEAD_SIZE_MAX) + len(HEAD_END)
        head, headers, body_size = data[:body_at], answer.headers, len(answer.body)
        is_plain = (
            body_size <= KNOWN_BODY_SIZE_MAX
            and body_at + body_size == len(data)
            and headers.get("content-length") == str(body_size)
            and "transfer-encoding" not in headers
            # One line each and no empty line before; else the parser may have seen the end
            # elsewhere.
            and head.count(b"\n") == head.count(b"\r\n") == len(headers) + 2
            and head.startswith(b"HTTP/1.1 %d" % answer.status)
        )
        if not is_plain:
            return
        if len(self._known) >= KNOWN_ANSWERS_MAX:
            self._known.clear()
        self._known[head] = _Known(answer.status, headers, len(data))
