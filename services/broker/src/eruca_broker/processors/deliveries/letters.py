"""Dead letters of deliveries: messages that were handed out as often as their group allows.

They are stored in the same write as the event that finishes them, behind it. Of a message that has
been damaged on the disk no letter can be made: it is finished without one, and that is logged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.names import dead_letter_topic
from eruca.contract.records import DamagedRecordError, decode_record
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.records.dead_letters import dead_letter_of, origin_of
from eruca_broker.core.records.scheduled import host_bits_of

NOT_ACKNOWLEDGED: Final = "not_acknowledged"  # why, where the time of the last lease ran out

_log = structlog.get_logger()


class DeadDelivery(NamedTuple):
    """A message that is given up."""

    raw: memoryview  # its record
    attempts: int  # how often it was handed out
    reason: str = NOT_ACKNOWLEDGED
    error: str | None = None


def letter_batches(group: str, dead: Iterable[DeadDelivery]) -> list[Batch]:
    """Return the dead letters, as they are appended; fewer where messages are damaged."""
    records: defaultdict[int, list[bytes]] = defaultdict(list)
    for delivery in dead:
        try:
            record = _letter(group, delivery)
        except (RecordNotFoundError, DamagedRecordError) as error:
            _log.error("no dead letter could be made", group=group, reason=str(error))
            continue
        records[host_bits_of(record)].append(record)
    return [batch_of_records(dead_letter_topic(group), 0, some) for some in records.values()]


def _letter(group: str, dead: DeadDelivery) -> bytes:
    return dead_letter_of(
        dead.raw,
        group,
        origin_of(decode_record(dead.raw, check_crc=False)),
        reconsume_times=dead.attempts,
        reason=dead.reason,
        error=dead.error,
    )
