"""A handler's verdict on its messages.

A concurrent consumer knows two statuses, an orderly one four. Each maps a status of the other kind
to the nearest of its own: RECONSUME_LATER suspends an ordered queue, and vice versa.

A handler that raises has failed. A handler that returns nothing has succeeded, as is usual for a
Python function without ``return``. In RocketMQ, null is a failure; the setting ``none_is_failure``
selects that rule.

Source: RocketMQ 5.3, ``ConsumeConcurrentlyStatus``, ``ConsumeOrderlyStatus``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ConsumeStatus(StrEnum):
    """A handler's verdict."""

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume_later"  # concurrent: send the messages back, retry after a delay
    SUSPEND = "suspend"  # orderly: retry in place, after the suspend time
    COMMIT = "commit"  # orderly without automatic commits: commit everything since the last commit
    ROLLBACK = "rollback"  # orderly without automatic commits: handle all of that again


_CONCURRENT: Final = {
    ConsumeStatus.SUCCESS: ConsumeStatus.SUCCESS,
    ConsumeStatus.RECONSUME_LATER: ConsumeStatus.RECONSUME_LATER,
    ConsumeStatus.SUSPEND: ConsumeStatus.RECONSUME_LATER,
}
_ORDERLY: Final = {
    ConsumeStatus.SUCCESS: ConsumeStatus.SUCCESS,
    ConsumeStatus.RECONSUME_LATER: ConsumeStatus.SUSPEND,
    ConsumeStatus.SUSPEND: ConsumeStatus.SUSPEND,
    ConsumeStatus.COMMIT: ConsumeStatus.COMMIT,
    ConsumeStatus.ROLLBACK: ConsumeStatus.ROLLBACK,
}


def status_of(returned: object, *, is_orderly: bool, none_is_failure: bool) -> ConsumeStatus | None:
    """Return the status of a handler's return value; None if the value is not a status."""
    words = _ORDERLY if is_orderly else _CONCURRENT
    if returned is None:
        return words[ConsumeStatus.SUSPEND] if none_is_failure else ConsumeStatus.SUCCESS
    return words.get(returned) if isinstance(returned, ConsumeStatus) else None
