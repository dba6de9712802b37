"""The results of sends: the places of stored messages.

A batch is stored with one receipt. A send of many messages returns a sequence that builds the
results from the receipts on access, because few are ever read.

Source: RocketMQ 5.3, ``SendResult``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, chain, repeat
from typing import Final, TypeAlias, overload

from msgspec import UNSET, Struct

from eruca.contract.message_ids import decode_offset_id, encode_offset_id
from eruca.contract.messages import BatchReceipt, ScheduledPlaces, SendReceipt
from eruca.contract.recall_handles import RecallHandle, encode_recall_handle
from eruca.contract.records import IPV4_HOST_SIZE, IPV6_HOST_SIZE, Host
from eruca.core.messages.message_queue import MessageQueue

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MS: Final = timedelta(milliseconds=1)
_host_of: Final = lru_cache(maxsize=256)(Host.from_text)  # receipts name few brokers


class SendResult(Struct, frozen=True, gc=False):
    """The place of a stored message, and its durability."""

    message_id: str  # the unique id; a retry or a copy of the message keeps it
    queue: MessageQueue
    queue_offset: int | None  # index in the queue; None for a delayed message
    log_offset: int  # bytes from the start of the broker's log
    stored_at_ms: int  # since the epoch, the broker's clock
    durability: str  # "flushed": on disk. "written": with the kernel, survives kill -9
    store_host: Host  # the broker, as its records name it
    deliver_at: datetime | None = None  # delivery time; None: delivered at once
    replayed: bool = False  # an idempotent producer's: an earlier attempt had stored it
    recall_handle: str | None = None  # cancels the delivery; None if it is not delayed
    copies: int = 1  # replicas that held it at the acknowledgement

    @property
    def offset_message_id(self) -> str:
        """The id that contains the place where it is stored."""
        return encode_offset_id(self.store_host, self.log_offset)

    @property
    def stored_at(self) -> datetime:
        """Store time, by the broker's clock."""
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self.stored_at_ms)


class StoredBatch(Struct, frozen=True, gc=False):
    """The place of a stored batch, which determines the place of each message."""

    message_ids: Sequence[str]
    queue: MessageQueue
    receipt: BatchReceipt
    sizes: bytes  # of the records as sent, u32 each, big-endian
    asked: Host  # the broker that was asked
    replayed: bool = False

    def result(self) -> SendResult:
        """Return the result of the only message."""
        receipt = self.receipt
        assert receipt.count == 1, "each message needs its own result"
        if receipt.scheduled is not UNSET:
            [result] = self._scheduled_results(receipt.scheduled)
            return result
        [message_id] = self.message_ids
        return SendResult(
            message_id,
            self.queue,
            receipt.queue_offset,
            receipt.log_offset,
            receipt.stored_at_ms,
            receipt.durability,
            self._store_host(),
            None,
            self.replayed,
            None,
            receipt.copies,
        )

    def results(self) -> list[SendResult]:
        """Return the result of each message."""
        receipt = self.receipt
        if receipt.scheduled is not UNSET:
            return self._scheduled_results(receipt.scheduled)
        if receipt.count == 1:
            return [self.result()]
        store_host = self._store_host()
        is_plain = not self.replayed and receipt.copies == 1
        sizes = struct.unpack(f">{receipt.count}I", self.sizes)
        # The stored record may have larger addresses than the one that was sent.
        larger = receipt.born_host_is_ipv6 + store_host.is_v6 - self.asked.is_v6
        if larger:
            sizes = tuple(size + larger * (IPV6_HOST_SIZE - IPV4_HOST_SIZE) for size in sizes)
        return list(
            map(
                SendResult,
                self.message_ids,
                repeat(self.queue),
                range(receipt.queue_offset, receipt.queue_offset + receipt.count),
                accumulate(sizes[:-1], initial=receipt.log_offset),
                repeat(receipt.stored_at_ms),
                repeat(receipt.durability),
                repeat(store_host),
                *(() if is_plain else map(repeat, (None, self.replayed, None, receipt.copies))),
            )
        )

    def _store_host(self) -> Host:
        """Return the broker that stored it: another replica after a redirect or a repeat."""
        host = self.receipt.store_host
        return self.asked if host is None else _host_of(host)

    def _scheduled_results(self, places: ScheduledPlaces) -> list[SendResult]:
        receipt, queue, store_host = self.receipt, self.queue, self._store_host()
        return [
            SendResult(
                message_id,
                queue,
                queue_offset,
                log_offset,
                receipt.stored_at_ms,
                receipt.durability,
                store_host,
                None if deliver_ms is None else _EPOCH + deliver_ms * _MS,
                self.replayed,
                None
                if deliver_ms is None
                else encode_recall_handle(
                    RecallHandle(queue.topic, queue.broker_name, deliver_ms, message_id)
                ),
                receipt.copies,
            )
            for message_id, queue_offset, log_offset, deliver_ms in zip(
                self.message_ids,
                places.queue_offsets,
                places.log_offsets,
                places.deliver_at_ms,
                strict=True,
            )
        ]


class StoredMessages(Struct, frozen=True, gc=False):
    """The places of stored messages with one receipt each, such as scheduled ones."""

    queue: MessageQueue
    receipts: Sequence[SendReceipt]
    replayed: bool = False

    def result(self) -> SendResult:
        """Return the result of the only message."""
        [result] = self.results()
        return result

    def results(self) -> list[SendResult]:
        """Return the result of each message."""
        return [
            SendResult(
                receipt.message_id,
                self.queue,
                receipt.queue_offset,
                receipt.log_offset,
                round(datetime.fromisoformat(receipt.stored_at).timestamp() * 1000),
                receipt.durability,
                decode_offset_id(receipt.offset_message_id).host,
                None if receipt.deliver_at is None else datetime.fromisoformat(receipt.deliver_at),
                self.replayed,
                receipt.recall_handle,
                receipt.copies,
            )
            for receipt in self.receipts
        ]


Stored: TypeAlias = StoredBatch | StoredMessages


class SendResults(Sequence[SendResult]):
    """The results of many messages, in the order in which the messages were given.

    Args:
        batches: The places of the batches.
        indexes: For each batch, the indexes of its messages in that order.
    """

    __slots__ = ("_batches", "_indexes", "_made")

    def __init__(self, batches: Sequence[Stored], indexes: Sequence[Sequence[int]]) -> None:
        self._batches = batches
        self._indexes = indexes
        self._made: list[SendResult] | None = None  # until the first access

    def __len__(self) -> int:
        return sum(map(len, self._indexes))

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        return self._all()[index]

    def __iter__(self) -> Iterator[SendResult]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (SendResults, list)):
            return NotImplemented
        return self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's

    def __repr__(self) -> str:
        return f"SendResults({self._all()!r})"

    def _all(self) -> list[SendResult]:
        made = self._made
        if made is None:
            results = chain.from_iterable(batch.results() for batch in self._batches)
            placed = dict(zip(chain.from_iterable(self._indexes), results, strict=True))
            made = self._made = [placed[index] for index in range(len(placed))]
        return made
