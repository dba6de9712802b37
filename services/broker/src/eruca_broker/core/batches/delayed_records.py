"""Records that ask for a delay, which a batch of records cannot have: they are refused.

A batch is stored as it came, in one queue. What is to be delivered later is stored elsewhere, so it
is sent as JSON. A record that asks for it by RocketMQ's properties must not be delivered at once
in silence. One that has waited already, in a store of RocketMQ, asks for nothing.

Nearly all records are found innocent by one short search; compiled code (``native/properties.c``)
leaves those that may not be to :func:`refuse_delayed`.

Source: RocketMQ 5.3, ``HookUtils.handleScheduleMessage``.
"""

from __future__ import annotations

import re
from typing import Final

from eruca.contract.errors import MalformedBatchError
from eruca.contract.properties import (
    DELAY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SECONDS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)

_TIMES: Final = (TIMER_DELAY_SECONDS, TIMER_DELAY_MS, TIMER_DELIVER_MS)
SUSPICIOUS: Final = b"DEL"
assert all(SUSPICIOUS in name.encode() for name in (DELAY, *_TIMES))

_LEVEL: Final = re.compile(rb"(?:^|\x02)(%s)\x01(?!0*(?:\x02|$))" % DELAY.encode())
_TIME: Final = re.compile(rb"(?:^|\x02)(%s)\x01" % "|".join(_TIMES).encode())
_HAS_WAITED: Final = re.compile(rb"(?:^|\x02)%s\x01" % TIMER_OUT_MS.encode())


def refuse_delayed(text: bytes | bytearray, index: int) -> None:
    """Raise MalformedBatchError if the properties *text* of record *index* ask for a delay."""
    found = _LEVEL.search(text) or (None if _HAS_WAITED.search(text) else _TIME.search(text))
    if found is not None:
        raise MalformedBatchError(
            f"record {index}: its property {found[1].decode()} asks for a delay, which records "
            "cannot have",
            fix="send messages that are delivered later as JSON",
        )
