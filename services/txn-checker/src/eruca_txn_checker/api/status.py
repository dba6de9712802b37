"""Status: the checker's identity, its settings, and its progress in the logs."""

from __future__ import annotations

from eruca.contract.access import Right
from eruca.contract.errors import DatabaseUnavailableError
from eruca.contract.transactions import CheckerStatus, CheckingRules
from eruca_access.needs import to
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_chassis.versions import version_of
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.instance import Instance
from eruca_txn_checker.api import examples
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.following import followed_brokers
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.settings import TxnCheckerSettings

router = Router(prefix="/v1/status", tags=["status"])


@router.get(
    "",
    operation_id="getStatus",
    needs=to(Right.QUERY, cluster=True),
    summary="Get the checker's settings, brokers and faults",
    responses=answer(examples.STATUS) | problems(DatabaseUnavailableError),
)
async def get_status(
    instance: Part[Instance],
    settings: Part[TxnCheckerSettings],
    shares: Part[BrokerShares[TransactionWork]],
    producers: Part[Producers],
) -> CheckerStatus:
    """Return this instance's own state, and the position reached in every broker's log."""
    async with instance.database.transaction() as connection:
        followed = await followed_brokers(connection)
    return CheckerStatus(
        version=version_of("eruca-txn-checker"),
        name=instance.name,
        started_at=instance.started_at,
        rules=CheckingRules(
            timeout_seconds=settings.timeout_seconds,
            interval_seconds=settings.interval_seconds,
            checks_max=settings.checks_max,
            age_seconds_max=settings.age_seconds_max,
            counts_unreachable=settings.counts_unreachable,
        ),
        brokers=sorted(shares.work),
        faults=shares.faults(),
        followed=followed,
        held_requests=len(producers.held),
        held_requests_max=producers.held.maximum,
    )
