"""Dead letters of deliveries: messages that were handed out as often as their group allows.

They are stored in the same write as the event that finishes them, behind it. The letter of a
damaged message has no body, and contains its place and its fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from eruca.contract.names import dead_letter_topic
from eruca.contract.records import Host, decode_record
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.damage import Damage
from eruca_broker.core.records.dead_letters import dead_letter_of, letter_of_damage, origin_of
from eruca_broker.core.records.scheduled import host_bits_of
from eruca_broker.core.state.leases import Queue

NOT_ACKNOWLEDGED: Final = "not_acknowledged"  # the reason if the last lease expired


class DeadDelivery(NamedTuple):
    """A message that becomes a dead letter."""

    queue: Queue
    raw: memoryview | Damage  # its record
    attempts: int  # the number of times that it was handed out
    reason: str = NOT_ACKNOWLEDGED
    error: str | None = None

    @property
    def size(self) -> int:
        """Return the approximate size of its letter in bytes."""
        return 0 if isinstance(self.raw, Damage) else len(self.raw)


def letter_batches(
    group: str, dead: Iterable[DeadDelivery], *, now_ms: int, host: Host
) -> list[Batch]:
    """Return the dead letters as records to append.

    Args:
        group: The group of the letters.
        dead: The messages.
        now_ms: Born time of the letters of damaged messages.
        host: The broker's, for those.
    """
    records: defaultdict[int, list[bytes]] = defaultdict(list)
    for delivery in dead:
        if isinstance(delivery.raw, Damage):
            record = letter_of_damage(
                delivery.raw,
                group,
                delivery.queue,
                attempts=delivery.attempts,
                now_ms=now_ms,
                host=host,
            )
        else:
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
