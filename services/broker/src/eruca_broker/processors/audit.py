"""Audit records: write them into this broker's log, as messages of the topic for them.

A record is a message like others: it is replicated, retained, found, exported. Its tag is the
event; its keys are the principal and the request's id, so that the index finds it by either.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from eruca.contract.audit import AUDIT_QUEUE_ID, AuditRecord
from eruca.contract.messages import Body, NewMessage
from eruca.contract.names import AUDIT_TOPIC
from eruca.contract.records import NO_HOST, Host
from eruca.core.messages.unique_ids import UniqueIds
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.new_messages import encode_messages
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

_PROPERTIES: Final = ("operation", "decision", "service")


class AuditLog:
    """Writes audit records into one store."""

    def __init__(self, store: MessageStore, *, store_host: Host, clock: Clock) -> None:
        self._store = store
        self._store_host = store_host
        self._clock = clock
        self._unique_ids = UniqueIds(store_host.address, secrets.randbits(32), secrets.randbits(16))

    async def write(
        self,
        records: Sequence[AuditRecord],
        *,
        reported_by: str | None = None,
        born_host: Host = NO_HOST,
    ) -> None:
        """Write records as one batch; they are as durable on return as the settings promise.

        Args:
            records: At least one.
            reported_by: The principal of the service that reports them; None: this broker.
            born_host: The service's address.

        Raises:
            ErucaError: Writes are refused now, or nobody knows whether they are in the log.
        """
        messages = [_message(record, reported_by) for record in records]
        now_ms = self._clock.now_ms()
        encoded = encode_messages(
            messages,
            pointers=[f"/body/records/{index}" for index in range(len(messages))],
            topic=AUDIT_TOPIC,
            queue_id=AUDIT_QUEUE_ID,
            born_host=born_host,
            store_host=self._store_host,
            now_ms=now_ms,
            next_unique_id=partial(self._unique_ids.next, now_ms, os.getpid()),
        )
        batch = batch_of_records(AUDIT_TOPIC, AUDIT_QUEUE_ID, encoded.records)
        await self._store.append(batch, born_host)


def _message(record: AuditRecord, reported_by: str | None) -> NewMessage:
    said = record.model_copy(update={"reported_by": reported_by})
    keys = [key for key in (said.principal, said.request_id) if key and not key.isspace()]
    properties = {name: str(value) for name in _PROPERTIES if (value := getattr(said, name))}
    return NewMessage(
        body=Body(json=msgspec.Raw(said.model_dump_json(exclude_none=True).encode())),
        tag=said.event,
        keys=[key for key in keys if key.split() == [key]],
        properties={name: value for name, value in properties.items() if value.strip()},
    )
