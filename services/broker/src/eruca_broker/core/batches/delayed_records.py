"""Records that ask for a delay, which a batch of records cannot have: they are refused.

A batch is stored as it came, in one queue. What is to be delivered later is stored elsewhere, so it
is sent as JSON. A record that asks for it by RocketMQ's properties must not be delivered at once
in silence. One that has waited already, in a store of RocketMQ, asks for nothing.

Nearly all records are found innocent by one short search.

Source: RocketMQ 5.3, ``HookUtils.handleScheduleMessage``.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import Final

from eruca.contract.errors import MalformedBatchError
from eruca.contract.properties import (
    DELAY,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    TIMER_DELAY_MS,
    TIMER_DELAY_SECONDS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from eruca_broker.core.properties.texts import Int64Array, UInt8Array

_TIMES: Final = (TIMER_DELAY_SECONDS, TIMER_DELAY_MS, TIMER_DELIVER_MS)
ASKING: Final = frozenset(name.encode() for name in (DELAY, *_TIMES))  # names of properties
SUSPICIOUS: Final = b"DEL"
assert all(SUSPICIOUS in name for name in ASKING)

_NAME_END, _END = NAME_SEPARATOR.encode(), PROPERTY_SEPARATOR.encode()
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


def refuse_any_delayed(buffer: bytearray, starts: Int64Array, sizes: Int64Array) -> None:
    """Do the same for all records whose properties lie at *starts*, in order."""
    begins, ends = starts.tolist(), (starts + sizes).tolist()
    if max(map(buffer.find, repeat(SUSPICIOUS), begins, ends)) >= 0:
        for index, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            refuse_delayed(buffer[begin:end], index)


def are_alike_and_sent_now(low: UInt8Array, high: UInt8Array) -> bool:
    """Tell whether texts with these bounds have the same names, of which none asks for a delay.

    If the texts of both bounds read alike, down to where each part ends, no separator and no name
    varies; a zero in the lower one could hide that.
    """
    lowest, highest = low.tobytes(), high.tobytes()
    parts = _parts_of(lowest)
    return (
        parts == _parts_of(highest)
        and 0 not in lowest
        and ASKING.isdisjoint(name for name, _, _ in parts)
    )


def _parts_of(text: bytes) -> list[tuple[bytes, bytes, int]]:
    """Return each property's name, its separator, and its value's size."""
    parts = []
    for fragment in text.split(_END):
        name, separator, value = fragment.partition(_NAME_END)
        parts.append((name, separator, len(value)))
    return parts
