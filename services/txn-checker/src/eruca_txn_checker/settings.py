"""The transaction checker's settings, from ``ERUCA_TXN_CHECKER_*`` and ``DATABASE_URL``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from eruca.contract.limits import CHECK_COUNT_MAX, CHECK_IMMUNITY_SECONDS_MAX
from eruca_postgres.settings import InstanceName, ProjectionSettings
from eruca_txn_checker.core.check_rules import (
    AGE_MAX_MS,
    CHECKS_MAX,
    INTERVAL_MS,
    REACHABLE_SECONDS_MAX,
    TIMEOUT_MS,
    CheckRules,
)
from eruca_txn_checker.core.reach import Reach


class TxnCheckerSettings(ProjectionSettings):
    """The settings of a transaction checker."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_TXN_CHECKER_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"ERUCA_TXN_CHECKER_URLS"})  # clients

    port: int = Field(default=10921, ge=0, le=65_535, description="port to listen on; 0: any free")
    name: InstanceName = "txn-checker"
    timeout_seconds: float = Field(
        default=TIMEOUT_MS / 1000,
        ge=0,
        le=CHECK_IMMUNITY_SECONDS_MAX,
        description="immunity of a new transaction, unless its message requests another",
    )
    interval_seconds: float = Field(
        default=INTERVAL_MS / 1000,
        ge=0.05,
        le=86_400,
        description="time from one check of a transaction to the next",
    )
    checks_max: int = Field(
        default=CHECKS_MAX,
        ge=1,
        le=CHECK_COUNT_MAX,
        description="checks after which a transaction expires: it is rolled back and parked",
    )
    age_seconds_max: float = Field(
        default=AGE_MAX_MS / 1000,
        ge=1,
        le=365 * 86_400,
        description="age at which a transaction expires without a further check",
    )
    counts_unreachable: bool = Field(
        default=True,
        description="whether checks continue, and count, while no producer of the group is "
        "reachable; if not, a transaction waits for one",
    )
    reachable_seconds: float = Field(
        default=15,
        ge=3,
        le=REACHABLE_SECONDS_MAX,
        description="a group is reachable if one of its producers waited for checks within this",
    )
    poll_seconds: float = Field(
        default=0.5,
        ge=0.02,
        le=60,
        description="minimum time between two queries of PostgreSQL for due work, and the poll "
        "period while its notifications do not arrive",
    )
    idle_poll_seconds: float = Field(
        default=5,
        ge=0.02,
        le=3_600,
        description="poll period of PostgreSQL while its notifications arrive: the longest delay "
        "after a lost notification, or after a broker's clock was set",
    )
    broker_seconds: float = Field(
        default=5, gt=0, le=60, description="time-out of a request to a broker"
    )
    checks_parallel_max: int = Field(
        default=32, ge=1, le=1_000, description="concurrent requests to one broker"
    )
    held_requests_max: int = Field(
        default=5_000, ge=0, description="producers' requests held until there is a check"
    )
    webhook_calls_max: int = Field(
        default=64, ge=1, le=1_000, description="concurrent webhook calls"
    )
    webhook_calls_per_group_max: int = Field(
        default=8, ge=1, le=1_000, description="concurrent webhook calls of one producer group"
    )
    webhook_attempts_max: int = Field(
        default=4, ge=1, le=20, description="webhook calls for one check, including the first"
    )
    webhook_reach: Reach = Field(
        default=Reach.PUBLIC,
        description="addresses that may be called. public: public ones; private: also private "
        "networks; machine: also this machine",
    )
    history_hours: float = Field(
        default=72, ge=0, le=100_000, description="hours for which decided transactions are kept"
    )

    @property
    def rules(self) -> CheckRules:
        """The settings of checking, as the core takes them."""
        return CheckRules(
            timeout_ms=round(self.timeout_seconds * 1000),
            interval_ms=round(self.interval_seconds * 1000),
            checks_max=self.checks_max,
            age_max_ms=round(self.age_seconds_max * 1000),
        )
