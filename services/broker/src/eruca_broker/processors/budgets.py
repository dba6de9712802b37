"""The budgets of requests in progress: senders have one, consumers another.

So senders never lock out the consumers that would make room.
"""

from __future__ import annotations

from eruca_chassis.admission.budget import Budget


class SendBudget(Budget):
    """Bytes of senders' requests in progress."""


class ConsumeBudget(Budget):
    """Bytes of consumers' requests and answers in progress."""
