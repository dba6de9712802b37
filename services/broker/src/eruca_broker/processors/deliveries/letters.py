"""Dead letters of deliveries: messages that were handed out as often as their group allows.

They are stored in the same write as the event that finishes them, behind it. Of a message that is
damaged no letter is made: it would look sound, with bytes that nobody sent. It is finished without
one, which is logged, and stays where it lies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from eruca.contract.names import dead_letter_topic
from eruca.contract.records import decode_record
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.damage import Damage
from eruca_broker.core.records.dead_letters import dead_letter_of, origin_of
from eruca_broker.core.records.scheduled import host_bits_of

NOT_ACKNOWLEDGED: Final = "not_acknowledged"  # why, where the time of the last lease ran out

_log = structlog.get_logger()


class DeadDelivery(NamedTuple):
    """A message that is given up."""

    raw: memoryview | Damage  # its record
    attempts: int  # how often it was handed out
    reason: str = NOT_ACKNOWLEDGED
    error: str | None = None

    @property
    def size(self) -> int:
        """Bytes that its letter takes, about."""
        return 0 if isinstance(self.raw, Damage) else len(self.raw)


def letter_batches(group: str, dead: Iterable[DeadDelivery]) -> list[Batch]:
    """Return the dead letters, as they are appended; fewer where messages are damaged."""
    records: defaultdict[int, list[bytes]] = defaultdict(list)
    for delivery in dead:
        if isinstance(delivery.raw, Damage):
            _log.error(
                "a damaged message is given up, without a dead letter",
                group=group,
                log_offset=delivery.raw.log_offset,
                fault=delivery.raw.reason,
            )
            continue
        record = _letter(group, delivery.raw, delivery)
        records[host_bits_of(record)].append(record)
    return [batch_of_records(dead_letter_topic(group), 0, some) for some in records.values()]


def _letter(group: str, raw: memoryview, dead: DeadDelivery) -> bytes:
    return dead_letter_of(
        raw,
        group,
        origin_of(decode_record(raw, check_crc=False)),
        reconsume_times=dead.attempts,
        reason=dead.reason,
        error=dead.error,
    )
