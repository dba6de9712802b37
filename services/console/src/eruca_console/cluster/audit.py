"""The newest audit records of each broker: who did what, and who was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from eruca import AsyncClient
from eruca.contract.audit import AUDIT_QUEUE_ID
from eruca.contract.errors import TopicNotFoundError, TransportError
from eruca.contract.messages import PullAnswer
from eruca.contract.names import AUDIT_TOPIC
from eruca.services.cluster import send_model

READ_MAX: Final = 1_000  # records of a broker, the newest


@dataclass(frozen=True, slots=True)
class AuditRecords:
    """Records of one broker.

    Attributes:
        records: Each with the fields of ``eruca.contract.audit.AuditRecord``, oldest first.
        is_cut: Whether there are older ones in the time that was asked for.
    """

    records: Sequence[Mapping[str, Any]]
    is_cut: bool


async def audit_of(client: AsyncClient, url: str, since: datetime) -> AuditRecords:
    """Return the newest records that the broker at *url* has written since a time.

    Raises:
        ForbiddenError: The caller may not read them.
    """
    api = client.context.broker_api
    try:
        first = await api.offset_by_time(
            url, AUDIT_TOPIC, AUDIT_QUEUE_ID, since, include_system=True
        )
        [queue] = (await api.topic_queues(url, AUDIT_TOPIC, include_system=True)).queues
    except TopicNotFoundError:
        return AuditRecords([], is_cut=False)  # it has written none yet
    offset = max(first.offset, queue.max_offset - READ_MAX)
    found: list[Mapping[str, Any]] = []
    while offset < queue.max_offset:
        pulled = await _pull(client, url, offset)
        found += [
            msgspec.json.decode(message.body.octets(), type=dict[str, Any])
            for message in pulled.messages
            if message.body is not None  # else it is damaged
        ]
        if pulled.next_offset <= offset:
            break
        offset = pulled.next_offset
    return AuditRecords(found, is_cut=queue.max_offset - first.offset > READ_MAX)


async def _pull(client: AsyncClient, url: str, offset: int) -> PullAnswer:
    target = (
        f"/v1/topics/{AUDIT_TOPIC}/queues/{AUDIT_QUEUE_ID}/messages"
        f"?offset={offset}&count_max={READ_MAX}&include_system=true"
    )
    context = client.context
    answer = await send_model(
        context.transport, "GET", url, target, timeout=context.settings.timeout_seconds
    )
    try:
        return msgspec.json.decode(answer.body, type=PullAnswer)
    except msgspec.DecodeError as error:
        raise TransportError(f"{url}{target}: the answer is invalid: {error}") from error
