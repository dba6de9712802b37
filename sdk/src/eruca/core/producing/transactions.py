"""The program's view of a transaction: its half message, its checks and its result.

A transaction of this client goes so; what is told to the broker stands on the arrows::

    beginning ──begin──▶ open ──commit, rollback──▶ decided
        │                 │ │
        │                 │ └── the decision cannot be delivered ──▶ left
        │                 └──── nobody knows (unknown) ────────────▶ left
        ▼
    not begun: the error is raised, and local code does not run

Where it is not begun, though its half message may be stored, a check is answered ``rollback`` if
the id was made for it. An id of the program's own may have been begun before, or elsewhere, so then
nothing follows from it, and the program's check function is asked.

``left``: the transaction is pending, and the checker asks the producer group.

Invariants:

1. Local code runs only once its half message is stored.
2. A check of a transaction whose local code still runs here is answered ``unknown``; when that has
   ended, what it said. The program's own check function is asked about all others.
3. Whoever decided first has decided: a decision that comes too late raises AlreadyDecidedError.
4. Where local code raises, or says nothing, nobody knows, unless the program says otherwise.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from eruca.contract.errors import ValidationError
from eruca.contract.messages import PulledMessage
from eruca.contract.transactions import DecisionReceipt
from eruca.core.consuming.delivery import received_message
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

if TYPE_CHECKING:
    from eruca.contract.transactions import ProducerCheck

Verdict: TypeAlias = Literal["commit", "rollback", "unknown"]
"""What local code, or a check, knows of a transaction."""

_VERDICTS: Final[dict[object, Verdict]] = {
    "commit": "commit",
    "rollback": "rollback",
    "unknown": "unknown",
}


class HalfMessage(Struct, frozen=True, gc=False):
    """A message that is stored, and that no consumer sees unless it is committed."""

    transaction_id: str  # also the message's unique id
    message: Message
    queue: MessageQueue  # where a commit stores it
    log_offset: int  # of the half message, in its broker's log
    begun_at: datetime  # by the broker's clock
    durability: str  # "flushed": on disk. "written": with the kernel, survives kill -9


class TransactionResult(Struct, frozen=True, gc=False):
    """The result of a transaction, as far as this producer knows it."""

    half: HalfMessage
    verdict: Verdict  # what local code said
    decision: DecisionReceipt | None  # the broker's; None: the transaction is left to the checker

    @property
    def transaction_id(self) -> str:
        """Its id, which is also the message's."""
        return self.half.transaction_id

    @property
    def is_decided(self) -> bool:
        """True if the broker has the decision; otherwise the checker will ask for it."""
        return self.decision is not None


class TransactionCheck(Struct, frozen=True, gc=False):
    """The question what became of a transaction."""

    transaction_id: str
    message: ReceivedMessage  # the half message; its queue is the one a commit stores it in
    producer_group: str
    number: int  # which check of this transaction: 1, 2, 3 …
    begun_at: datetime
    answer_until: datetime  # then the check counts as unanswered


def verdict_of(returned: object) -> Verdict:
    """Return what a function of the program's means; it knows nothing where it returned nothing.

    Raises:
        ValidationError: It returned something else.
    """
    if returned is None:
        return "unknown"
    verdict = _VERDICTS.get(returned) if isinstance(returned, str) else None
    if verdict is None:
        raise ValidationError(
            f"{returned!r} says nothing about a transaction",
            fix='return "commit", "rollback" or "unknown"',
        )
    return verdict


def transaction_check(check: ProducerCheck) -> TransactionCheck:
    """Return a check as the program sees it.

    Raises:
        ValueError: The checker's question makes no sense.
    """
    try:
        # A JSON body is kept as its raw text, which only decoding gives.
        asked = msgspec.json.decode(msgspec.json.encode(check.message), type=PulledMessage)
    except msgspec.ValidationError as error:  # a ValueError of its own accord from 0.21 on
        raise ValueError(f"the message cannot be read: {error}") from error
    message = received_message(asked, MessageQueue(check.topic, check.broker_name, check.queue_id))
    return TransactionCheck(
        check.transaction_id,
        message,
        check.producer_group,
        check.number,
        check.begun_at,
        check.answer_until,
    )
