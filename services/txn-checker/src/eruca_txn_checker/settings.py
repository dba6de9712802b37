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
    """What a transaction checker can be told."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_TXN_CHECKER_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"ERUCA_TXN_CHECKER_URLS"})  # clients'

    port: int = Field(default=10921, ge=0, le=65_535, description="port to listen on; 0: any free")
    name: InstanceName = "txn-checker"
    timeout_seconds: float = Field(
        default=TIMEOUT_MS / 1000,
        ge=0,
        le=CHECK_IMMUNITY_SECONDS_MAX,
        description="a transaction is left alone for so long, unless its message asks otherwise",
    )
    interval_seconds: float = Field(
        default=INTERVAL_MS / 1000,
        ge=0.05,
        le=86_400,
        description="from one check of a transaction to the next",
    )
    checks_max: int = Field(
        default=CHECKS_MAX,
        ge=1,
        le=CHECK_COUNT_MAX,
        description="checks after which a transaction is given up: rolled back and parked",
    )
    age_max_seconds: float = Field(
        default=AGE_MAX_MS / 1000,
        ge=1,
        le=365 * 86_400,
        description="a transaction older than this is given up without a further check",
    )
    counts_unreachable: bool = Field(
        default=True,
        description="whether checks go on, and count, while no producer of the group can be "
        "reached; if not, a transaction waits for one",
    )
    reachable_seconds: float = Field(
        default=15,
        ge=3,
        le=REACHABLE_SECONDS_MAX,
        description="a group can be reached if a producer waited for checks within this",
    )
    poll_seconds: float = Field(
        default=0.5,
        ge=0.02,
        le=60,
        description="PostgreSQL is asked for what is due no more often than that; and that often "
        "while its notifications do not arrive",
    )
    idle_poll_seconds: float = Field(
        default=5,
        ge=0.02,
        le=3_600,
        description="how often PostgreSQL is asked while its notifications arrive and tell of "
        "nothing: as late is noticed what one that was lost would have told, or a broker's clock "
        "that was set",
    )
    broker_seconds: float = Field(
        default=5, gt=0, le=60, description="a broker must answer within this"
    )
    checks_parallel_max: int = Field(
        default=32, ge=1, le=1_000, description="requests to one broker at a time"
    )
    held_requests_max: int = Field(
        default=5_000, ge=0, description="producers' requests held until there is a check"
    )
    webhook_calls_max: int = Field(
        default=64, ge=1, le=1_000, description="calls of webhooks at a time"
    )
    webhook_calls_per_group_max: int = Field(
        default=8, ge=1, le=1_000, description="… of one producer group"
    )
    webhook_attempts_max: int = Field(
        default=4, ge=1, le=20, description="calls for one check, the first included"
    )
    webhook_reach: Reach = Field(
        default=Reach.PUBLIC,
        description="which addresses may be called: public; private: those of private networks, "
        "too; machine: and this machine's own",
    )
    history_hours: float = Field(
        default=72, ge=0, le=100_000, description="how long decided transactions are remembered"
    )

    @property
    def rules(self) -> CheckRules:
        """When transactions are checked, and when they are given up."""
        return CheckRules(
            timeout_ms=round(self.timeout_seconds * 1000),
            interval_ms=round(self.interval_seconds * 1000),
            checks_max=self.checks_max,
            age_max_ms=round(self.age_max_seconds * 1000),
        )
