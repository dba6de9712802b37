"""A producer's record of its transactions: it answers checks without calling the program.

States of an id::

    (not in the book) ──begin──▶ under way ──unknown──▶ (not in the book)
                                     │
                                     └──commit, rollback──▶ concluded ──settle──▶ (not in the book)

While one is under way nobody knows, whatever the program's check function thinks: the local code
may be about to commit. A concluded one is answered as it was concluded, until its broker knows; if
there are too many, the oldest make room, and then the check function is asked about them.

An id of the program's own may be begun again, after it was concluded or while another process works
under it. So what was concluded counts until the half message is stored again, and one that could
not be stored says nothing of the id.
"""

from __future__ import annotations

from typing import Final

from eruca.core.producing.transactions import Verdict

CONCLUDED_COUNT_MAX: Final = 10_000


class TransactionBook:
    """The transactions of one producer that are not decided at their brokers."""

    def __init__(self, concluded_max: int = CONCLUDED_COUNT_MAX) -> None:
        self._under_way: dict[str, int] = {}  # how often each is: ids may be the program's own
        self._concluded: dict[str, Verdict] = {}  # oldest first
        self._concluded_max = concluded_max

    def begin(self, transaction_id: str) -> None:
        """Note that a half message is about to be sent."""
        self._under_way[transaction_id] = self._under_way.get(transaction_id, 0) + 1

    def note_stored(self, transaction_id: str) -> None:
        """Note that the half message is stored, so local code will say what is so from now on."""
        self._concluded.pop(transaction_id, None)

    def conclude(self, transaction_id: str, verdict: Verdict) -> None:
        """Note what the local code said, or what is so since it will never run."""
        count = self._under_way.pop(transaction_id)
        if count > 1:
            self._under_way[transaction_id] = count - 1
        elif verdict != "unknown":
            self._concluded[transaction_id] = verdict
            if len(self._concluded) > self._concluded_max:
                del self._concluded[next(iter(self._concluded))]

    def settle(self, transaction_id: str) -> None:
        """Note that the broker knows what became of it."""
        self._concluded.pop(transaction_id, None)

    def answer(self, transaction_id: str) -> Verdict | None:
        """Return what a check is answered; None: the check function is to be asked."""
        if transaction_id in self._under_way:
            return "unknown"
        return self._concluded.get(transaction_id)
