"""Single records by their offset ids: which broker has them, and asking it.

An offset id names the store host that its broker had, and a log offset there. A name server knows
who has that store host now. The client remembers it, and does not ask again as long as that broker
answers with the very record, which shows its own id. After any other answer it asks who has the
store host now. So a broker that has moved, or another one at its address, costs one request more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

from eruca.contract.errors import ErucaError, RecordNotFoundError, ValidationError
from eruca.contract.message_ids import OffsetId, UndecodableIdError, decode_offset_id
from eruca.contract.records import PORT_MAX, Host
from eruca.core.routing.replicas import holder_of

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.aio.cluster.masters import Masters
    from eruca.contract.messages import LogRecordView

HOSTS_MAX: Final = 1_024  # store hosts remembered; bounds the memory of a program that makes up ids


class StoredRecords:
    """The records in the logs of a cluster's brokers."""

    def __init__(self, context: ClientContext, masters: Masters) -> None:
        self._context = context
        self._masters = masters
        self._urls: dict[Host, str] = {}  # of the brokers that have shown a record of the host

    async def by_id(self, offset_message_id: str) -> LogRecordView:
        """Return the record with an offset id.

        Raises:
            ValidationError: The text is not a message id.
            RecordNotFoundError: The text is a unique id, no live broker has its store host, or no
                record starts at its offset.
            MessageDamagedError: The record at its offset is damaged.
        """
        host, log_offset = _decoded(offset_message_id)
        known = self._urls.get(host)
        outcome: LogRecordView | ErucaError | None = None
        if known is not None:
            outcome = await self._asked(known, log_offset)
            if _is_of(outcome, offset_message_id):
                return outcome
            self._urls.pop(host, None)
        url = await self._url_of(host, offset_message_id)
        if outcome is None or url != known:
            outcome = await self._asked(url, log_offset)
        if isinstance(outcome, ErucaError):
            raise outcome
        if len(self._urls) >= HOSTS_MAX:
            self._urls.clear()
        self._urls[host] = url
        return outcome

    async def _asked(self, url: str, log_offset: int) -> LogRecordView | ErucaError:
        try:
            return await self._context.broker_api.record(url, log_offset)
        except ErucaError as error:
            return error

    async def _url_of(self, host: Host, offset_message_id: str) -> str:
        """Return the URL of the live broker that has the records of a store host."""
        for group in await self._masters.brokers():
            if (broker := holder_of(group, host)) is not None:
                return self._masters.url(broker.urls)
        raise RecordNotFoundError(
            f"no live broker has the store host {host.ip}:{host.port} of {offset_message_id}",
            fix="if it is a unique id, use messages_by_key",
        )


def _is_of(outcome: LogRecordView | ErucaError, offset_message_id: str) -> TypeGuard[LogRecordView]:
    if isinstance(outcome, ErucaError):
        return False
    return outcome.message.offset_message_id == offset_message_id.upper()


def _decoded(offset_message_id: str) -> OffsetId:
    try:
        decoded = decode_offset_id(offset_message_id)
    except UndecodableIdError:
        raise ValidationError(
            "expected an offset id of 32 hex digits, or 56 with an IPv6 address; found"
            f" {offset_message_id!r}",
            fix="to find a message by its unique id, use messages_by_key or the query service",
        ) from None
    if not 0 < decoded.host.port <= PORT_MAX:
        raise RecordNotFoundError(
            f"{offset_message_id} is a unique id, which does not contain the message's log offset",
            fix="use messages_by_key or the query service",
        )
    return decoded
