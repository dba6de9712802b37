"""Messages with their bodies, which are read from the brokers' logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from msgspec import UNSET

from eruca.contract.messages import LogRecordView, as_builtins
from eruca.contract.queries import BodyMissing, WholeMessage
from eruca_query.core.found_messages import FoundMessage
from eruca_query.searching.broker_logs import BrokerLogs, Fault

PARALLEL_MAX: Final = 16  # requests for bodies at a time, for one answer
# Bytes of bodies in one answer, as encoded in it; a larger single body is returned alone. A request
# holds them several times: as the broker's answer, as objects, and as JSON.
BODIES_SIZE_MAX: Final = 32 * 1024 * 1024


def whole(found: FoundMessage, record: LogRecordView | Fault | None) -> WholeMessage:
    """Return a message with its record's content, or with the reason why that is missing."""
    if record is None:
        return without_body(found, "retention")
    if isinstance(record, Fault):
        return without_body(
            found, "damaged" if record.reason == "damaged" else "broker_unreachable"
        )
    message = record.message
    assert message.body is not None, "a damaged record is not found"
    return WholeMessage(
        **found.fields(),
        body=as_builtins(message.body),
        body_missing=None,
        properties=message.properties,
        sharding_key=message.sharding_key,
        reconsume_times=message.reconsume_times,
        flag=message.flag,
        system_properties=record.system_properties,
    )


def without_body(found: FoundMessage, missing: BodyMissing) -> WholeMessage:
    """Return a message without its record's content."""
    return WholeMessage(
        **found.fields(),
        body=None,
        body_missing=missing,
        properties=None,
        sharding_key=None,
        reconsume_times=None,
        flag=None,
        system_properties=None,
    )


async def with_bodies(logs: BrokerLogs, found: Sequence[FoundMessage]) -> list[WholeMessage]:
    """Return messages with their bodies, in order, as many of the first ones as fit.

    At least one is returned, if there is one.
    """

    async def fetch(message: FoundMessage) -> LogRecordView | Fault | None:
        record = await logs.record(message.broker_name, message.log_offset)
        return record if _is_same(message, record) else None

    fetched: list[WholeMessage] = []
    room = BODIES_SIZE_MAX
    while len(fetched) < len(found):
        some = _that_may_fit(found[len(fetched) :][:PARALLEL_MAX], room)
        for message, record in zip(some, await asyncio.gather(*map(fetch, some)), strict=True):
            room -= _body_size(record)
            if room < 0 and fetched:
                return fetched
            fetched.append(whole(message, record))
    return fetched


def _that_may_fit(found: Sequence[FoundMessage], room: int) -> Sequence[FoundMessage]:
    """Return the first messages, at least one, whose records fit by their size in the log."""
    sizes = accumulate(message.size for message in found)
    return found[: max(1, sum(size <= room for size in sizes))]


def _body_size(record: LogRecordView | Fault | None) -> int:
    if not isinstance(record, LogRecordView):
        return 0
    body = record.message.body
    assert body is not None, "a damaged record is not found"
    json_size = 0 if body.json is UNSET else len(bytes(body.json))
    return len(body.text or "") + len(body.base64 or "") + json_size


def _is_same(found: FoundMessage, record: LogRecordView | Fault | None) -> bool:
    """Tell whether a record is the message's, rather than another one's in a newly begun log."""
    if not isinstance(record, LogRecordView):
        return record is not None
    return (record.message.topic, record.message.queue_offset, record.size) == (
        found.topic,
        found.queue_offset,
        found.size,
    )
