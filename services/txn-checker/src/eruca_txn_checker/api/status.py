"""Status: the checker's identity, its settings, and its progress in the logs."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter

from eruca.contract.errors import DatabaseUnavailableError
from eruca.contract.transactions import CheckerStatus, CheckingRules
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_txn_checker.api import examples
from eruca_txn_checker.api.dependencies import TheChecker
from eruca_txn_checker.checking.following import followed_brokers

router = APIRouter(prefix="/v1/status", tags=["status"])


@router.get(
    "",
    operation_id="getStatus",
    summary="Get the checker's settings, brokers and faults",
    responses=answer(examples.STATUS) | problems(DatabaseUnavailableError),
)
async def get_status(checker: TheChecker) -> CheckerStatus:
    """Return this instance's own state, and the position reached in every broker's log."""
    async with checker.instance.database.transaction() as connection:
        followed = await followed_brokers(connection)
    settings = checker.settings
    return CheckerStatus(
        version=version("eruca-txn-checker"),
        name=checker.instance.name,
        started_at=checker.instance.started_at,
        rules=CheckingRules(
            timeout_seconds=settings.timeout_seconds,
            interval_seconds=settings.interval_seconds,
            checks_max=settings.checks_max,
            age_seconds_max=settings.age_seconds_max,
            counts_unreachable=settings.counts_unreachable,
        ),
        brokers=sorted(checker.shares.work),
        faults=checker.shares.faults(),
        followed=followed,
        held_requests=len(checker.producers.held),
        held_requests_max=checker.producers.held.maximum,
    )
