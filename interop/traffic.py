"""Messages and transactions that are sent without pause while brokers fail."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

import eruca
from interop import data
from interop.checks import Checks
from interop.eruca_client import receipt_of, sdk_message
from interop.messages import Message, NewMessage, Place, as_sent, by_place, stored
from interop.side import Side

_PRODUCER_GROUP: Final = "interop-group-transactions"
_PATIENCE_SECONDS: Final = 60.0  # for one batch or transaction: longer than any fail-over
_BATCH_SIZE: Final = 20
_PAUSE_SECONDS: Final = 0.05  # after each batch: the logs stay of moderate size
_BATCHES_PER_TRANSACTION: Final = 5
_POLL_SECONDS: Final = 0.05


class TrafficError(Exception):
    """A send failed, or nothing was acknowledged for too long."""


class Traffic:
    """Sends *messages* in batches, and transactions among them, until the block ends."""

    def __init__(self, name_server: str, messages: Sequence[NewMessage]) -> None:
        self.acknowledged: list[Message] = []  # in the order in which they were sent
        self.committed: list[bytes] = []  # bodies
        self.rolled_back: list[bytes] = []
        self._name_server = name_server
        self._messages = messages
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1, "traffic")
        self._sending: Future[None]

    def __enter__(self) -> Self:
        self._sending = self._pool.submit(self._send)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._pool.shutdown()
        if error is None:
            self._check()

    def stop(self) -> None:
        """Send no more; return once all that was sent is acknowledged.

        Raises:
            TrafficError: A send failed.
        """
        self._is_over.set()
        wait([self._sending])
        self._check()

    def wait_for_more(self, count: int = 5 * _BATCH_SIZE) -> None:
        """Wait until *count* more messages are acknowledged.

        Raises:
            TrafficError: A send failed, or this takes too long.
        """
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + 2 * _PATIENCE_SECONDS
        while len(self.acknowledged) < wanted:
            self._check()
            if time.monotonic() > deadline:
                raise TrafficError(f"expected {wanted} messages, {len(self.acknowledged)} are sent")
            time.sleep(_POLL_SECONDS)

    def check_read(
        self, checks: Checks, side: Side, read: Sequence[Message], earlier: Sequence[Message]
    ) -> None:
        """Check that the flights *read* are those acknowledged and the *earlier* ones, in order.

        The producer is idempotent: what it repeated after a failure is there once. Then the receipt
        is the next master's, and so may be the host in its offset id. Such an id must lead to the
        message all the same.
        """
        found = by_place(map(as_sent, read))
        sent = by_place([*map(as_sent, earlier), *self.acknowledged])
        repeated: dict[str, set[Place]] = {}
        for place, message in sent.items():
            offset_id = message.offset_message_id
            if place in found and found[place].offset_message_id != offset_id:
                repeated[offset_id] = {place}
                sent[place] = replace(message, offset_message_id=found[place].offset_message_id)
        what = "every acknowledged message is where its receipt says, once"
        checks.same_entries(what, found, sent)
        led = side.find("offset_id", data.FLIGHTS, list(repeated))
        places = {offset_id: {message.place for message in rows} for offset_id, rows in led.items()}
        checks.same_entries("receipts of repeated sends lead to their messages", places, repeated)
        orders: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for message in self.acknowledged:
            if message.sharding_key is not None:
                orders[message.sharding_key].append((message.queue_id, message.queue_offset))
        disordered = {key: places for key, places in orders.items() if not _are_in_order(places)}
        checks.equal("each sharding key's messages are in one queue, in order", disordered, {})

    def check_decided(self, checks: Checks, read: Sequence[Message]) -> None:
        """Check that the messages *read* are those of committed transactions."""
        bodies = sorted(message.body for message in read)
        checks.equal("transactions: what was committed, once", bodies, sorted(self.committed))
        checks.record(
            "transactions: some were rolled back",
            agrees=bool(self.rolled_back),
            detail=f"{len(self.rolled_back)}",
        )

    def _check(self) -> None:
        if not self._sending.done():
            return
        if (error := self._sending.exception()) is not None:
            raise TrafficError(f"the traffic ended: {error!r}") from error
        if not self._is_over.is_set():
            raise TrafficError(f"all {len(self._messages)} messages are sent")

    def _send(self) -> None:
        with (
            eruca.Client(self._name_server, timeout_seconds=_PATIENCE_SECONDS) as client,
            client.producer(idempotent=True, send_timeout_seconds=_PATIENCE_SECONDS) as producer,
            client.transaction_producer(
                _PRODUCER_GROUP,
                send_timeout_seconds=_PATIENCE_SECONDS,
                decision_timeout_seconds=_PATIENCE_SECONDS,
            ) as transactions,
        ):
            for first in range(0, len(self._messages), _BATCH_SIZE):
                batch = self._messages[first : first + _BATCH_SIZE]
                results = producer.send_many([sdk_message(message) for message in batch])
                self.acknowledged += [
                    stored(message, receipt_of(result))
                    for message, result in zip(batch, results, strict=True)
                ]
                if first // _BATCH_SIZE % _BATCHES_PER_TRANSACTION == 0:
                    self._transact(transactions, first)
                if self._is_over.wait(_PAUSE_SECONDS):
                    return

    def _transact(self, transactions: eruca.TransactionProducer, number: int) -> None:
        """Commit one transaction, and roll another one back."""
        committed = b"committed after %d" % number
        with transactions.transaction(_decided(committed)):
            pass
        self.committed.append(committed)
        rolled_back = b"rolled back after %d" % number
        with transactions.transaction(_decided(rolled_back)) as transaction:
            transaction.rollback()
        self.rolled_back.append(rolled_back)


def _decided(body: bytes) -> eruca.Message:
    return eruca.Message(data.DECIDED, body, tag="tx", keys=["decision"])


def _are_in_order(places: Sequence[tuple[int, int]]) -> bool:
    return len({queue_id for queue_id, _ in places}) == 1 and list(places) == sorted(places)
