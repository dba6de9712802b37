"""A batch of records that may request delivery times: rewritten as they wait, or read one by one.

Mostly each record requests a delivery time by its last property. Then compiled code
(``native/delayed.c``) verifies the batch and writes its records as they wait. So the broker handles
no single message in Python. If one record is not plainly valid, or does not wait, the batch is read
one record at a time (:func:`requests_of`), and :mod:`..records.scheduled` rewrites each. Where both
can decide, they must decide the same.
"""

from __future__ import annotations

from ctypes import addressof
from functools import lru_cache
from typing import Final, NamedTuple

from eruca.contract import properties as names
from eruca.contract.names import TIMER_TOPIC
from eruca.contract.records import Host
from eruca.contract.wire import DELAYED_BATCH_MAGIC
from eruca_broker.core.batches.batch import SIZE_BYTES, Batch, begun_batch, sizes_of
from eruca_broker.core.batches.record_proof import Expected, prove_record
from eruca_broker.core.native.library import Delay, address_of, delay_records
from eruca_broker.core.properties.found import prefix_hash
from eruca_broker.core.records.scheduled import Destination, Wait

_TIME_SIZE_MAX: Final = 20  # bytes of a delivery time, with the separator behind it
_TOPIC_PART: Final = bytes((len(TIMER_TOPIC),)) + TIMER_TOPIC.encode()
_PLACE: Final = Wait(deliver_at_ms=1).place


class Requests(NamedTuple):
    """A batch whose records may request delivery times; only its preamble is verified."""

    batch: Batch
    expected: Expected

    @property
    def destination(self) -> Destination:
        """The queue to which all records are delivered."""
        return Destination(self.batch.topic, self.batch.queue_id)


class Request(NamedTuple):
    """A valid record that may request a delivery time."""

    record: bytes
    properties: bytes


def may_be_delayed(buffer: bytearray) -> bool:
    """Tell whether a request's body says that its records may request delivery times."""
    return buffer[:4] == DELAYED_BATCH_MAGIC


def begun_requests(buffer: bytearray, *, topic: str, queue_id: int, store_host: Host) -> Requests:
    """Return the batch in *buffer*, of which :func:`may_be_delayed` is true.

    Raises:
        MalformedBatchError: As :func:`.batch.begun_batch` does.
    """
    return Requests(*begun_batch(buffer, topic=topic, queue_id=queue_id, store_host=store_host))


def waiting_batch(requests: Requests, *, now_ms: int, deliver_ms_max: int) -> Batch | None:
    """Return the batch of all records as they wait, in the timer topic.

    None if one is not plainly valid, requests no later time than *now_ms*, or one after
    *deliver_ms_max*: :func:`requests_of` says what it is.
    """
    batch, expected = requests
    topic_part, added = _parts_for(requests.destination)
    delay = Delay(
        topic=topic_part,
        added=added,
        now_ms=now_ms,
        deliver_ms_max=deliver_ms_max,
        topic_size=len(topic_part),
        added_size=len(added),
        key_hash_start=prefix_hash(TIMER_TOPIC),
    )
    longer = len(topic_part) + len(added) + _TIME_SIZE_MAX
    buffer = bytearray(batch.size + batch.count * longer)
    count, found, at = batch.count, batch.found, address_of(buffer)
    done = delay_records(
        *(batch.at - SIZE_BYTES * count, batch.at, batch.size, count),
        *(expected.at, addressof(delay), at, found.at),
    )
    if done < count:
        return None
    size = found.start_of(count)
    return Batch(*_PLACE, buffer, 0, batch.layout, count, size, found=found, at=at)


def requests_of(requests: Requests) -> list[Request]:
    """Return the batch's records, one by one, which are valid.

    Raises:
        MalformedBatchError: As :func:`.batch.check_batch` does, but not for a delay.
        TooLargeError: As there.
        ValidationError: As there.
    """
    batch, expected = requests
    buffer, start = batch.buffer, batch.start
    assert isinstance(buffer, bytearray), "only records that are not stamped are verified"
    found = list[Request]()
    for row, size in enumerate(sizes_of(batch)):
        properties = prove_record(buffer, start, row, size, expected, may_be_delayed=True)
        found.append(Request(bytes(buffer[start : start + size]), properties))
        start += size
    return found


@lru_cache(maxsize=1024)
def _parts_for(destination: Destination) -> tuple[bytes, bytes]:
    """Return the topic of waiting records as they have it, and what is added to their properties.

    The delivery time follows.
    """
    added = {names.REAL_TOPIC: destination.topic, names.REAL_QUEUE_ID: str(destination.queue_id)}
    text = names.encode_properties(added) + names.TIMER_OUT_MS + names.NAME_SEPARATOR
    return _TOPIC_PART, text.encode()
