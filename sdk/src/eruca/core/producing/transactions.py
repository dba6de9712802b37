"""The program's view of a transaction: its half message, its checks and its result.

A transaction of this client has these states; the arrows show the requests to the broker::

    beginning ──begin──▶ open ──commit, rollback──▶ decided
        │                 │ │ │
        │                 │ │ └── … that nobody awaits ────────────▶ handed over
        │                 │ └──── the decision cannot be delivered ▶ left
        │                 └────── the outcome is unknown ──────────▶ left
        ▼
    not begun: the error is raised, and local code does not run

If a transaction is not begun, its half message may be stored nevertheless. Then a check is answered
``rollback`` if the id was generated for it. The program's own id may have been begun before or
elsewhere, so the program's check function is called.

``left``: the transaction is pending, and the checker asks the producer group. ``handed over``: the
decision is delivered in the background, and becomes ``decided`` or ``left`` unseen.

Invariants:

1. Local code runs only after its half message is stored.
2. While the local code of a transaction runs here, a check is answered ``unknown``. After it has
   ended, a check is answered with its verdict. All other checks are answered by the program's check
   function.
3. The first decision wins. A later, different decision raises AlreadyDecidedError.
4. If local code raises or returns nothing, the outcome is unknown, unless the program sets another.
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
"""The outcome of a transaction, as local code or a check knows it."""

_VERDICTS: Final[dict[object, Verdict]] = {
    "commit": "commit",
    "rollback": "rollback",
    "unknown": "unknown",
}


class HalfMessage(Struct, frozen=True, gc=False):
    """A stored message that consumers do not see until it is committed."""

    transaction_id: str  # also the message's unique id
    message: Message
    queue: MessageQueue  # the queue in which a commit stores it
    log_offset: int  # of the half message, in its broker's log
    begun_at: datetime  # by the broker's clock
    durability: str  # "flushed": on disk. "written": with the kernel, survives kill -9


class TransactionResult(Struct, frozen=True, gc=False):
    """The result of a transaction, as far as this producer knows it."""

    half: HalfMessage
    verdict: Verdict  # of the local code
    decision: DecisionReceipt | None  # the broker's; None: left to the checker, or not awaited

    @property
    def transaction_id(self) -> str:
        """Its id, which is also the message's."""
        return self.half.transaction_id

    @property
    def is_decided(self) -> bool:
        """True if the broker has confirmed the decision.

        Otherwise the checker will ask for it, or the producer does not await decisions.
        """
        return self.decision is not None


class TransactionCheck(Struct, frozen=True, gc=False):
    """A request for the outcome of a transaction."""

    transaction_id: str
    message: ReceivedMessage  # the half message; its queue is the one for the commit
    producer_group: str
    number: int  # number of this check of the transaction: 1, 2, 3 …
    begun_at: datetime
    answer_until: datetime  # after it, the check counts as unanswered


def verdict_of(returned: object) -> Verdict:
    """Return the verdict in a result of the program's function; ``unknown`` for None.

    Raises:
        ValidationError: The result is not a verdict.
    """
    if returned is None:
        return "unknown"
    verdict = _VERDICTS.get(returned) if isinstance(returned, str) else None
    if verdict is None:
        raise ValidationError(
            f"expected a verdict on a transaction, found {returned!r}",
            fix='return "commit", "rollback" or "unknown"',
        )
    return verdict


def transaction_check(check: ProducerCheck) -> TransactionCheck:
    """Return a check in its form for programs.

    Raises:
        ValueError: The checker's request is invalid.
    """
    try:
        # A JSON body is kept as raw text, which only decoding returns.
        asked = msgspec.json.decode(msgspec.json.encode(check.message), type=PulledMessage)
    except msgspec.ValidationError as error:  # a subclass of ValueError since msgspec 0.21
        raise ValueError(f"the message is invalid: {error}") from error
    message = received_message(asked, MessageQueue(check.topic, check.broker_name, check.queue_id))
    return TransactionCheck(
        check.transaction_id,
        message,
        check.producer_group,
        check.number,
        check.begun_at,
        check.answer_until,
    )
