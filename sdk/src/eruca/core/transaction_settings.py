"""What a transaction producer works with, checked when it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from eruca.contract import names
from eruca.contract.errors import ValidationError
from eruca.contract.limits import CHECKS_TAKEN_MAX
from eruca.core.client_settings import checked_seconds
from eruca.core.transactions import TransactionCheck, Verdict

CHECK_CONCURRENCY_DEFAULT: Final = 8
DECISION_TIMEOUT_DEFAULT: Final = 5.0  # seconds, all attempts together

CheckFunction: TypeAlias = Callable[[TransactionCheck], Verdict | Awaitable[Verdict | None] | None]
"""Says what became of a transaction; None is ``unknown``."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """A transaction producer's settings."""

    group: str
    check: CheckFunction | None
    check_concurrency: int
    send_timeout: float
    retries: int
    decision_timeout: float

    def __post_init__(self) -> None:
        if (fault := names.client_group_fault(self.group)) is not None:
            raise ValidationError(f"group: {self.group!r} is {fault.value.replace('_', ' ')}")
        if self.check is not None and not callable(self.check):
            raise ValidationError(f"check: {self.check!r} is no function")
        if not 1 <= self.check_concurrency <= CHECKS_TAKEN_MAX:
            raise ValidationError(
                f"check_concurrency: {self.check_concurrency} is not within 1 to {CHECKS_TAKEN_MAX}"
            )
        if self.retries < 0:
            raise ValidationError(f"retries: {self.retries} is below 0")
        checked_seconds(self.send_timeout, "send_timeout")
        checked_seconds(self.decision_timeout, "decision_timeout")
