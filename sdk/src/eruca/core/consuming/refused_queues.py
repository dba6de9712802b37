"""Find the queues that a broker refuses, in a request whose other queues it would serve.

A broker refuses a request for many queues if one of them cannot be read: its topic was deleted, has
fewer queues now, or is not readable, or its file has failed. The same holds for a commit of
offsets. The error points at such queues. So the client continues without them, and retries them now
and then, because they may come back.
"""

from __future__ import annotations

import re
from typing import Final

from eruca.contract.errors import (
    ErucaError,
    PermissionDeniedError,
    QueueNotFoundError,
    TopicNotFoundError,
    UnavailableError,
    ValidationError,
)

UNREADABLE_ERRORS: Final = (TopicNotFoundError, QueueNotFoundError, PermissionDeniedError)
_OFFSET_POINTER: Final = re.compile(r"/body/offsets/([0-9]{1,6})/offset", re.ASCII)
_POINTER: Final = re.compile(r"/body/(?:queues|offsets)/([0-9]{1,6})", re.ASCII)


def refused_places(error: ErucaError, count: int) -> list[int]:
    """Return the indexes of the unreadable queues among the *count* requested ones.

    The list is empty if the error concerns the whole request.
    """
    if isinstance(error, ValidationError):
        pointer = _OFFSET_POINTER
    elif isinstance(error, (*UNREADABLE_ERRORS, UnavailableError)):
        pointer = _POINTER
    else:
        return []
    found = (pointer.fullmatch(entry.get("pointer", "")) for entry in error.errors)
    places = {int(match[1]) for match in found if match is not None}
    return sorted(place for place in places if place < count)
