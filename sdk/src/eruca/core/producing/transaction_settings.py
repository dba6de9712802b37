"""Validate a transaction producer's settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from eruca.contract.errors import ValidationError
from eruca.contract.limits import CHECK_IMMUNITY_SECONDS_MAX, CHECKS_TAKEN_MAX
from eruca.core.checked_names import check_own_group
from eruca.core.checked_numbers import check_count, check_range, checked_seconds
from eruca.core.producing.transactions import HalfMessage, TransactionCheck, Verdict
from eruca.core.routing.latency_fault import LatencyProfile
from eruca.core.routing.services import TXN_CHECKER

CheckFunction: TypeAlias = Callable[[TransactionCheck], Verdict | Awaitable[Verdict | None] | None]
"""Says what became of a transaction; None is ``unknown``."""
LocalCode: TypeAlias = Callable[[HalfMessage], Verdict | Awaitable[Verdict | None] | None]
"""What a transaction's message tells of, and whether it has been done; None is ``unknown``."""
OnError: TypeAlias = Literal["unknown", "rollback"]
"""What it means that local code raises."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """A transaction producer's settings."""

    group: str
    check: CheckFunction | None
    check_concurrency: int
    checker_urls: tuple[str, ...]  # none: the name servers are asked
    latency_fault: bool | LatencyProfile
    retries_max: int
    send_timeout_seconds: float
    decision_timeout_seconds: float

    @classmethod
    def resolve(
        cls,
        environment: Mapping[str, str],
        group: str,
        *,
        check: CheckFunction | None,
        check_concurrency: int,
        checker_urls: str | Iterable[str] | None,
        latency_fault: bool | LatencyProfile,
        retries_max: int,
        send_timeout_seconds: float,
        decision_timeout_seconds: float,
    ) -> TransactionSettings:
        """Return the settings.

        Raises:
            ValidationError: One cannot be used; the error says which, and where it came from.
        """
        check_own_group(group)
        if check is not None and not callable(check):
            raise ValidationError(f"check: {check!r} is no function")
        check_count("check_concurrency", check_concurrency, 1, CHECKS_TAKEN_MAX)
        check_count("retries_max", retries_max, 0)
        return cls(
            group,
            check,
            check_concurrency,
            TXN_CHECKER.given(environment, checker_urls, "checker_urls"),
            latency_fault,
            retries_max,
            checked_seconds(send_timeout_seconds, "send_timeout_seconds"),
            checked_seconds(decision_timeout_seconds, "decision_timeout_seconds"),
        )


def checked_immunity(seconds: float | None) -> float | None:
    """Return for how long nobody is to be asked about a transaction, if that can be wished."""
    if seconds is not None:
        check_range("check_immunity_seconds", seconds, 0, CHECK_IMMUNITY_SECONDS_MAX)
    return seconds


def checked_on_error(on_error: OnError) -> OnError:
    """Return what an error means, if it can."""
    if on_error not in ("unknown", "rollback"):
        raise ValidationError(
            f'on_error: {on_error!r} is neither "unknown" nor "rollback"',
            fix="an error says nothing, unless it is certain that it undoes the local work",
        )
    return on_error
