"""Singles: requests of one message each, gathered until their tick of the event loop ends.

All of them for one queue are one batch in the log, but each has its own answer. They keep their
order, with each other and with everything else that is appended: the writer takes what is gathered
before it accepts another batch. A batch contains requests of one form. It ends as soon as one of
another form arrives for its queue.

States of a request: *gathered*, then *appended* with the others; or, if one of them is not plainly
valid or they do not fit together, *sent alone*, as it would have been without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from eruca.contract.errors import ErucaError
from eruca_broker.core.batches.batch import Batch
from eruca_broker.processors.send_message import Sender
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore

S = TypeVar("S")
C = TypeVar("C")

Together: TypeAlias = Callable[[str, int, Sequence[S]], Batch | None]
"""Returns the batch of what was gathered for a queue of a topic; None if it cannot be one."""

Settled: TypeAlias = Callable[[Sequence[C], Appended | Exception], None]
"""Called with some callers and their batch, of a record for each, or the error of all of them. Must
not raise, because others wait behind it."""

GATHERED_SIZE_MAX: Final = 256 * 1024  # bytes of requests that are appended together


class Gathering:
    """The requests that are gathered now, by queue; those of all forms share it."""

    def __init__(self, store: MessageStore, sender: Sender) -> None:
        self.store = store
        self.sender = sender
        self.groups: dict[tuple[str, int], _Group[Any, Any]] = {}


class Singles(Generic[S, C]):
    """Gathers requests of one form.

    Args:
        gathering: Has those of the other forms, too.
        together: Returns the batch of several.
        settled: Called with the callers of records that were appended together, or refused.
        send_alone: Sends the record of each caller without the others; must not raise.

    Attributes:
        add: Gathers one request. Its arguments are the topic and queue of its message; the message,
            as *together* expects it; the number of its bytes; and the caller, who gets the outcome.
    """

    def __init__(
        self,
        gathering: Gathering,
        *,
        together: Together[S],
        settled: Settled[C],
        send_alone: Callable[[Sequence[C]], None],
    ) -> None:
        self._groups = gathering.groups
        self._store = gathering.store
        self._sender = gathering.sender
        self._together = together
        self._settled = settled
        self._send_alone = send_alone
        self.add = self._store.noting(self._add)

    def _add(self, queue: tuple[str, int], single: S, size: int, caller: C) -> None:
        group = self._groups.get(queue)
        if group is None or group.form is not self:
            group = self._groups[queue] = _Group(self, self._sender.now())
            self._store.announce(partial(self._append, queue, group))
        group.singles.append(single)
        group.callers.append(caller)
        group.size += size
        if group.size > GATHERED_SIZE_MAX:
            del self._groups[queue]  # the next one begins another group, behind this one

    def _append(self, queue: tuple[str, int], group: _Group[S, C]) -> None:
        if self._groups.get(queue) is group:
            del self._groups[queue]
        if not self._append_together(*queue, group):
            self._send_alone(group.callers)

    def _append_together(self, topic: str, queue_id: int, group: _Group[S, C]) -> bool:
        """Append a group as one batch; return whether that was possible."""
        batch = self._together(topic, queue_id, group.singles)
        if batch is None:
            return False
        done = partial(self._settled, group.callers)
        try:
            return self._sender.append_gathered(batch, group.started, done)
        except ErucaError:
            return False  # each gets its own refusal, or fits into a segment alone


class _Group(Generic[S, C]):
    """The requests of one form for one queue, in the order of their arrival."""

    __slots__ = ("callers", "form", "singles", "size", "started")

    def __init__(self, form: Singles[S, C], started: float) -> None:
        self.form = form
        self.started = started  # monotonic
        self.singles: list[S] = []
        self.callers: list[C] = []
        self.size = 0  # bytes of the requests
