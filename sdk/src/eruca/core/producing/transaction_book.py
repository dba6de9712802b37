"""A producer's record of its transactions: it answers checks without calling the program.

States of an id::

    (not in the book) ──begin──▶ under way ──unknown──▶ (not in the book)
                                     │
                                     └──commit, rollback──▶ concluded ──settle──▶ (not in the book)

While a transaction is under way its outcome is unknown, whatever the program's check function says:
the local code may be about to commit. A concluded one is answered with its conclusion until the
broker has it. If there are too many, the oldest are dropped, and the check function is called for
them.

The program may begin its own id again: after its conclusion, or while another process uses it. So a
conclusion is valid until the half message is stored again. A half message that could not be stored
changes nothing about the id.
"""

from __future__ import annotations

from typing import Final

from eruca.core.producing.transactions import Verdict

CONCLUDED_COUNT_MAX: Final = 10_000


class TransactionBook:
    """The transactions of one producer that are undecided at their brokers."""

    def __init__(self, concluded_max: int = CONCLUDED_COUNT_MAX) -> None:
        # how often each is under way: the program may use its own ids
        self._under_way: dict[str, int] = {}
        self._concluded: dict[str, Verdict] = {}  # oldest first
        self._concluded_max = concluded_max

    def begin(self, transaction_id: str) -> None:
        """Record that a half message is about to be sent."""
        self._under_way[transaction_id] = self._under_way.get(transaction_id, 0) + 1

    def note_stored(self, transaction_id: str) -> None:
        """Record that the half message is stored: from now on its local code decides."""
        self._concluded.pop(transaction_id, None)

    def conclude(self, transaction_id: str, verdict: Verdict) -> None:
        """Record the verdict of the local code, or the outcome if it will never run."""
        count = self._under_way.pop(transaction_id)
        if count > 1:
            self._under_way[transaction_id] = count - 1
        elif verdict != "unknown":
            self._concluded[transaction_id] = verdict
            if len(self._concluded) > self._concluded_max:
                del self._concluded[next(iter(self._concluded))]

    def settle(self, transaction_id: str) -> None:
        """Record that the broker has the decision."""
        self._concluded.pop(transaction_id, None)

    def answer(self, transaction_id: str) -> Verdict | None:
        """Return the answer to a check; None: call the check function."""
        if transaction_id in self._under_way:
            return "unknown"
        return self._concluded.get(transaction_id)
