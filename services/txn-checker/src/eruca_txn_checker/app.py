"""The transaction checker, put together: the only place that builds and wires."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from eruca import AsyncClient
from eruca.contract.errors import DatabaseUnavailableError
from eruca.contract.names import CHECKERS_NAMESPACE
from eruca.contract.transactions import DecisionReceipt
from eruca.core.client_settings import TIMEOUT_SECONDS_DEFAULT
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.held import HeldPlaces
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.announcing import Announcing, url_of
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.database import Database
from eruca_postgres.gate import DatabaseGate
from eruca_postgres.leases import LeaseKeeper
from eruca_postgres.log_projector import LogProjector
from eruca_postgres.server import server_of
from eruca_txn_checker.api import brokers, checks, status, transactions, webhooks
from eruca_txn_checker.api.metrics import CheckerMetrics
from eruca_txn_checker.checker import TransactionChecker
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.broker_calls import BrokerCalls
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.due_work import CheckCounts, DueSettings, DueWork
from eruca_txn_checker.checking.postgres_clock import PostgresClock
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.checking.webhook_call import WebhookCaller
from eruca_txn_checker.checking.webhooks import WebhookLimits, Webhooks
from eruca_txn_checker.projection.fold import TransactionProjection
from eruca_txn_checker.projection.forgotten import PERIOD_SECONDS as FORGETTING_SECONDS
from eruca_txn_checker.projection.forgotten import ForgottenRows
from eruca_txn_checker.projection.tables import SCHEMA
from eruca_txn_checker.settings import TxnCheckerSettings

MIGRATIONS: Final = Path(__file__).parent / "projection" / "migrations"
LEASE_STEPS: Final = 4  # within the time of a lease
_DESCRIPTION: Final = """
The transaction checker asks producer groups about transactions that nobody has decided: six seconds
after they were begun, then every 30 seconds, 15 times. A transaction about which nobody says
anything is given up then: rolled back, and parked for an operator. All of these are settings.

A producer is asked by the answer to a request that is held for it, or by a webhook. It may also
commit or roll back at the broker itself, at any time. The first decision wins.

What is told here follows from the brokers' logs and may be a moment old; answers to checks and
operators' decisions go through to the broker. Every refusal is an `application/problem+json`
document whose `code` is stable.
"""
_TAGS: Final = (
    {"name": "checks", "description": "For producers: being asked, and answering"},
    {"name": "webhooks", "description": "For producer groups that would rather be called"},
    {"name": "transactions", "description": "For operators: what is pending, parked, and was"},
    {"name": "status", "description": "Who the checker is and how far it has read"},
)

_log = structlog.get_logger()


class TxnCheckerApp(ServiceApp):
    """The transaction checker's application, with what is no pydantic model in its document."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            schemas = super().openapi()["components"]["schemas"]
            _, structs = msgspec.json.schema_components(
                [DecisionReceipt], ref_template="#/components/schemas/{name}"
            )
            schemas.update(structs)
        return super().openapi()


def create_app(settings: TxnCheckerSettings, clock: Clock | None = None) -> TxnCheckerApp:
    """Return the transaction checker's application; its lifespan opens the database."""
    clock = clock or SystemClock()
    held = HeldPlaces(maximum=settings.held_requests_max)

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            url, server = await stack.enter_async_context(server_of(settings))
            database = Database(url, SCHEMA, connections_max=settings.database_connections_max)
            stack.push_async_callback(database.close)
            client = await stack.enter_async_context(
                AsyncClient(
                    settings.namesrv_urls,
                    network=settings.network,
                    timeout=TIMEOUT_SECONDS_DEFAULT,  # or it would be that of clients started here
                )
            )
            postgres_clock = PostgresClock(database, clock)
            checker, keeper = _wire(settings, database, client, held, postgres_clock)
            app.state.checker = checker
            metrics = CheckerMetrics(checker)
            app.registry.register(metrics)
            stack.callback(app.registry.unregister, metrics)
            sharing = BackgroundLoop(
                "leases",
                lambda: _share(checker.shares, postgres_clock),
                period_seconds=settings.lease_seconds / LEASE_STEPS,
            )

            def own_url() -> str:
                assert app.address is not None
                return settings.advertised_url or url_of(*app.address)

            announcing = Announcing(
                client,
                database,
                checker.name,
                namespace=CHECKERS_NAMESPACE,
                family=f"{settings.name}-",
                url=own_url,
            )

            forgetting = BackgroundLoop(
                "forgetting", ForgottenRows(database).step, period_seconds=FORGETTING_SECONDS
            )

            async def begin() -> None:
                await postgres_clock.compare()
                sharing.start()
                forgetting.start()
                if app.address is not None:
                    announcing.start()
                checker.producers.start()
                checker.webhooks.start()
                _log.info("working", checker=checker.name, schema=SCHEMA)

            async def end() -> None:
                await asyncio.gather(sharing.stop(), forgetting.stop())
                await asyncio.gather(
                    announcing.stop(),
                    checker.producers.stop(),
                    checker.webhooks.stop(),
                    checker.shares.stop(),
                )
                await _leave(keeper)

            gate = DatabaseGate(
                database,
                url,
                MIGRATIONS,
                server=server,
                readiness=app.readiness,
                on_migrated=begin,
            )
            stack.push_async_callback(end)
            await gate.start()
            stack.push_async_callback(gate.stop)
            yield
            app.begin_stop()

    app = TxnCheckerApp(
        title="Eruca transaction checker",
        summary="Asks producer groups what became of transactions that nobody decided",
        description=_DESCRIPTION,
        version=version("eruca-txn-checker"),
        tags=_TAGS,
        routers=[
            checks.router,
            webhooks.router,
            transactions.router,
            status.router,
            brokers.router,
        ],
        lifespan=lifespan,
        explorer_origins=settings.explorer_origins,
    )
    app.stop_hooks.append(held.release_all)
    return app


async def _share(shares: BrokerShares, clock: PostgresClock) -> None:
    try:
        await clock.compare()
        await shares.step()
    except DatabaseUnavailableError:
        return  # the service says so; work pauses by itself when the leases end


async def _leave(keeper: LeaseKeeper) -> None:
    try:
        await keeper.leave()
    except DatabaseUnavailableError:
        return  # the leases end by themselves


def _wire(
    settings: TxnCheckerSettings,
    database: Database,
    client: AsyncClient,
    held: HeldPlaces,
    clock: Clock,
) -> tuple[TransactionChecker, LeaseKeeper]:
    # No other process has this name, and this one not after a restart: its old leases are not ours.
    name = f"{settings.name}-{secrets.token_hex(4)}"
    rules = settings.rules
    calls = BrokerCalls(client, timeout=settings.broker_seconds)
    questions = Questions(database, calls, clock)
    answers = Answers(database, calls, clock)
    producers = Producers(
        database,
        questions,
        held,
        clock,
        interval_ms=rules.interval_ms,
        poll_seconds=settings.poll_seconds,
    )
    hooks = Webhooks(
        database,
        questions,
        answers,
        WebhookCaller(settings.webhook_reach),
        clock,
        limits=WebhookLimits(
            calls_max=settings.webhook_calls_max,
            calls_per_group_max=settings.webhook_calls_per_group_max,
            attempts_max=settings.webhook_attempts_max,
        ),
        interval_ms=rules.interval_ms,
        poll_seconds=settings.poll_seconds,
    )
    due_settings = DueSettings(
        rules=rules,
        checker=name,
        counts_unreachable=settings.counts_unreachable,
        reachable_ms=round(settings.reachable_seconds * 1000),
        parallel_max=settings.checks_parallel_max,
        history_ms=round(settings.history_hours * 3_600_000),
    )
    counts = CheckCounts()
    keeper = LeaseKeeper(database, name, seconds=settings.lease_seconds, clock=clock)

    def tell(groups: set[str]) -> None:
        producers.wake(groups)
        hooks.wake()

    def work_on(broker_name: str) -> TransactionWork:
        due = DueWork(
            database,
            calls,
            answers,
            broker_name,
            lease=lambda: shares.lease(broker_name),
            settings=due_settings,
            counts=counts,
            clock=clock,
        )
        projector = LogProjector(
            database,
            client,
            broker_name,
            lease=lambda: shares.lease(broker_name),
            projection=TransactionProjection(
                rules, clock, on_checks=tell, on_folded=lambda _name, ids: due.folded(ids)
            ),
        )
        return TransactionWork(projector, due, poll_seconds=settings.poll_seconds)

    shares = BrokerShares(database, client, keeper, work_on)
    checker = TransactionChecker(
        name=name,
        started_at=datetime.now(UTC),
        settings=settings,
        clock=clock,
        database=database,
        client=client,
        calls=calls,
        counts=counts,
        questions=questions,
        answers=answers,
        producers=producers,
        webhooks=hooks,
        shares=shares,
    )
    return checker, keeper
