"""Refuse records that request a delay in a batch whose form does not say so.

Such a batch is stored as it came, in one queue. A delayed message is stored elsewhere, so it must
be sent as JSON, or in a batch of the form for it (:mod:`.delayed_batch`). If a record requests a
delay by RocketMQ's properties, it must not be delivered at once silently. A record that was delayed
in a RocketMQ store, and whose delay is over, requests nothing.

One short search clears nearly all records. Compiled code (``native/properties.c``) passes the
others to :func:`refuse_delayed`.

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
    """Raise MalformedBatchError if the properties *text* of record *index* request a delay."""
    found = _LEVEL.search(text) or (None if _HAS_WAITED.search(text) else _TIME.search(text))
    if found is not None:
        raise MalformedBatchError(
            f"record {index}: its property {found[1].decode()} requests a delay, which records "
            "of this form cannot have",
            fix="send delayed messages as JSON, or in a batch with the magic ERB4",
        )
