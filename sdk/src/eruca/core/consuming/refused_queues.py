"""Which queues of a request a broker refuses, where it would serve the others.

A request for many queues is refused as a whole when one of them cannot be read: its topic has been
deleted, has fewer queues now, or may not be read, or its file has failed; likewise a commit of
offsets. The error points at
such queues, so whoever asked goes on without them, and looks for them again now and then: they may
come back.
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
    """Return the places of the queues that cannot be read among the *count* asked for, from 0.

    None where the error is of the request as a whole.
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
