"""The promises, each as a function that finds where a history breaks it.

A checker reads the history alone. It knows nothing of the product, and can judge a history of any
run again, for instance with a checker that was written later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from chaos.checkers import deciding, groups, holding, messages, readers
from chaos.checkers.facts import Anomaly
from chaos.history import History

Checker = Callable[[History], Iterator[Anomaly]]

CHECKERS: Final[Mapping[str, Checker]] = {
    "lost": messages.lost,
    "unseen": messages.unseen,
    "inconsistent-offset": messages.inconsistent_offset,
    "duplicate": messages.duplicate,
    "aborted-read": messages.aborted_read,
    "contiguous": messages.contiguous,
    "poll-skip": readers.poll_skip,
    "nonmonotonic-poll": readers.nonmonotonic_poll,
    "unhandled": readers.unhandled,
    "commits": readers.commits,
    "locks": holding.locks,
    "stale-tokens": holding.stale_tokens,
    "leases": holding.leases,
    "conserved": holding.conserved,
    "timers": deciding.timers,
    "transactions": deciding.transactions,
    "topics": groups.topics,
    "epochs": groups.epochs,
    "equal-logs": groups.equal_logs,
    "caught-up": groups.caught_up,
    "rebuilt": groups.rebuilt,
    "repaired": groups.repaired,
    "liveness": groups.liveness,
}
"""The checkers by the name of the promise, in the order of a report."""


def check(history: History) -> dict[str, list[Anomaly]]:
    """Return the anomalies that each checker finds."""
    return {name: list(checker(history)) for name, checker in CHECKERS.items()}
