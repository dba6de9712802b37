"""What a handler says about the messages it was given.

A concurrent consumer knows two words, an orderly one four. A word of the other kind is taken for
the nearest: what is to be consumed later suspends an ordered queue, and the other way round.

A handler that raises has failed. One that returns nothing has succeeded: that is what a Python
function without ``return`` means. RocketMQ takes null for a failure; so does a consumer that was
made with ``none_is_failure``.

Source: RocketMQ 5.3, ``ConsumeConcurrentlyStatus``, ``ConsumeOrderlyStatus``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ConsumeStatus(StrEnum):
    """A handler's verdict."""

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume_later"  # concurrent: send it back, to be retried after a delay
    SUSPEND = "suspend"  # orderly: try again in place, after the suspend time
    COMMIT = "commit"  # orderly without automatic commits: everything since the last one is done
    ROLLBACK = "rollback"  # orderly without automatic commits: all of that once more


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
    """Return what a handler's return value means; None if it means nothing at all."""
    words = _ORDERLY if is_orderly else _CONCURRENT
    if returned is None:
        return words[ConsumeStatus.SUSPEND] if none_is_failure else ConsumeStatus.SUCCESS
    return words.get(returned) if isinstance(returned, ConsumeStatus) else None
