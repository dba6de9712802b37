"""Singles: requests of one record each, gathered until their tick of the event loop ends.

All of them for one queue are one batch in the log (:mod:`eruca_broker.core.batches.gathered`), but
each has its own answer. They keep their order, with each other and with everything else that is
appended: the writer takes what is gathered before it accepts another batch.

States of a request: *gathered*, then *appended* with the others; or, if one of them is not plainly
valid or they do not fit together, *sent alone*, as it would have been without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

from eruca.contract.errors import ErucaError, TooLargeError
from eruca_broker.core.batches.gathered import gather
from eruca_broker.processors.send_message import Sender
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore

C = TypeVar("C")

Settled: TypeAlias = Callable[[Sequence[C], Appended | Exception], None]
"""Called with some callers and their batch, of a record for each, or with the error of all of them;
must not raise, because others wait behind it."""

GATHERED_SIZE_MAX: Final = 256 * 1024  # bytes of requests that are appended together


class Singles(Generic[C]):
    """Gathers single records by queue.

    Args:
        store: Takes them.
        sender: Sends them.
        settled: Called with the callers of records that were appended together, or refused.
        send_alone: Sends the record of one caller without the others; must not raise.
    """

    def __init__(
        self,
        store: MessageStore,
        sender: Sender,
        *,
        settled: Settled[C],
        send_alone: Callable[[C], None],
    ) -> None:
        self._store = store
        self._sender = sender
        self._settled = settled
        self._send_alone = send_alone
        self._groups: dict[tuple[str, int], _Group[C]] = {}

    def add(
        self,
        topic: str,
        queue_id: int,
        request: bytes | bytearray,
        born_address: bytes,
        caller: C,
    ) -> None:
        """Gather a request of one record.

        Args:
            topic: The record's topic.
            queue_id: The record's queue.
            request: The request's body; *is_single* has accepted it.
            born_address: The peer's IPv4 address and port, encoded.
            caller: Gets the outcome.
        """
        key = topic, queue_id
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(self._sender.now())
            self._store.announce(partial(self._append, key, group))
        group.requests.append(request)
        group.born_addresses.append(born_address)
        group.callers.append(caller)
        group.size += len(request)
        if group.size > GATHERED_SIZE_MAX:
            del self._groups[key]  # the next one begins another group, behind this one

    def _append(self, key: tuple[str, int], group: _Group[C]) -> None:
        if self._groups.get(key) is group:
            del self._groups[key]
        try:
            is_appended = self._append_together(*key, group)
        except ErucaError as error:
            self._settled(group.callers, error)
            return
        if not is_appended:
            for caller in group.callers:
                self._send_alone(caller)

    def _append_together(self, topic: str, queue_id: int, group: _Group[C]) -> bool:
        """Append a group as one batch; return whether that was possible.

        Raises:
            ErucaError: All of them are refused.
        """
        batch = gather(
            topic, queue_id, group.requests, group.born_addresses, self._sender.store_host
        )
        if batch is None:
            return False
        done = partial(self._settled, group.callers)
        try:
            return self._sender.append_gathered(batch, group.started, done)
        except TooLargeError:
            return False  # together they are larger than a segment


class _Group(Generic[C]):
    """The requests for one queue, in the order of their arrival."""

    __slots__ = ("born_addresses", "callers", "requests", "size", "started")

    def __init__(self, started: float) -> None:
        self.started = started  # monotonic
        self.requests: list[bytes | bytearray] = []
        self.born_addresses: list[bytes] = []
        self.callers: list[C] = []
        self.size = 0  # bytes of the requests
