"""Build and wire the transaction checker's application; nothing is wired elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from eruca.contract.names import CHECKERS_NAMESPACE
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.held import HeldPlaces
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.instance import Instance, ServiceKind, instance_of
from eruca_postgres.log_projector import LogProjector
from eruca_postgres.notices import Notices
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
from eruca_txn_checker.projection.fold import FoldCounts, TransactionProjection
from eruca_txn_checker.projection.forgotten import PERIOD_SECONDS as FORGETTING_SECONDS
from eruca_txn_checker.projection.forgotten import ForgottenRows
from eruca_txn_checker.projection.tables import SCHEMA
from eruca_txn_checker.settings import TxnCheckerSettings

MIGRATIONS: Final = Path(__file__).parent / "projection" / "migrations"
KIND: Final = ServiceKind(SCHEMA, MIGRATIONS, namespace=CHECKERS_NAMESPACE)
_DESCRIPTION: Final = """
The transaction checker asks producer groups about transactions that nobody has decided: six seconds
after they began, then every 30 seconds, 15 times. A transaction without an answer expires then: it
is rolled back, and parked for an operator. All of these are settings.

A producer gets a check as the answer to a request that is held for it, or through a webhook. It may
also commit or roll back at the broker itself, at any time. The first decision wins.

The data served here comes from the brokers' logs and may be a moment old. Answers to checks and
operators' decisions are forwarded to the broker. Every refusal is an `application/problem+json`
document with a stable `code`.
"""
_TAGS: Final = (
    {"name": "checks", "description": "For producers: wait for checks and answer them"},
    {"name": "webhooks", "description": "For producer groups that prefer to be called"},
    {"name": "transactions", "description": "For operators: pending, parked and past transactions"},
    {"name": "status", "description": "The checker's state and its progress in the logs"},
)


def create_app(settings: TxnCheckerSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the transaction checker's application; its lifespan opens the database."""
    clock = clock or SystemClock()
    held = HeldPlaces(maximum=settings.held_requests_max)

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        async with instance_of(settings, KIND, clock) as instance:
            postgres_clock = PostgresClock(instance.database, clock)
            app.state.checker = checker = _wire(settings, instance, held, postgres_clock)

            async def compare_clocks() -> None:
                if await postgres_clock.compare():
                    checker.wake()

            forgetting = BackgroundLoop(
                "forgetting",
                ForgottenRows(instance.database).step,
                period_seconds=FORGETTING_SECONDS,
            )
            with app.telling(CheckerMetrics(checker)):
                async with instance.at_work(
                    app,
                    checker.shares,
                    [checker.notices, forgetting, checker.producers, checker.webhooks],
                    prepare=compare_clocks,
                ):
                    yield
                    app.begin_stop()

    app = ServiceApp(
        title="Eruca transaction checker",
        summary="Asks producer groups about transactions that nobody has decided",
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
        guard=settings.guard(),
        client_share=settings.client_share,
    )
    app.stop_hooks.append(held.release_all)
    return app


def _wire(
    settings: TxnCheckerSettings, instance: Instance, held: HeldPlaces, clock: Clock
) -> TransactionChecker:
    database, client = instance.database, instance.client
    rules = settings.rules
    calls = BrokerCalls(client, timeout=settings.broker_seconds)
    questions = Questions(database, calls, clock)
    answers = Answers(database, calls, clock)

    def poll_seconds() -> float:
        """Return how often to poll PostgreSQL: rarely while notices arrive."""
        shortest = settings.poll_seconds
        return max(settings.idle_poll_seconds, shortest) if notices.is_listening else shortest

    producers = Producers(
        database,
        questions,
        held,
        clock,
        interval_ms=rules.interval_ms,
        poll_seconds=poll_seconds,
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
        poll_seconds=poll_seconds,
    )
    due_settings = DueSettings(
        rules=rules,
        checker=instance.name,
        counts_unreachable=settings.counts_unreachable,
        reachable_ms=round(settings.reachable_seconds * 1000),
        parallel_max=settings.checks_parallel_max,
        history_ms=round(settings.history_hours * 3_600_000),
    )
    counts, folds = CheckCounts(), FoldCounts()

    def tell(groups: set[str]) -> None:
        producers.wake(groups)
        hooks.wake()

    notices = Notices(
        database,
        instance.name,
        on_notice=lambda notice: checker.heed(notice),
        on_gap=lambda: checker.wake(),
    )

    def work_on(broker_name: str) -> TransactionWork:
        due = DueWork(
            database,
            calls,
            answers,
            broker_name,
            claim=lambda: shares.claim(broker_name),
            sleep_seconds_max=poll_seconds,
            settings=due_settings,
            counts=counts,
            clock=clock,
        )

        def folded(_name: str, ids: Collection[str]) -> None:
            due.folded(ids)
            work.wake()

        projector = LogProjector(
            database,
            client,
            broker_name,
            claim=lambda: shares.claim(broker_name),
            projection=TransactionProjection(
                rules,
                clock,
                on_checks=tell,
                on_folded=folded,
                ask=calls.get,
                counts=folds,
            ),
        )
        work = TransactionWork(projector, due, poll_seconds=settings.poll_seconds)
        return work

    shares = instance.share_brokers(work_on)
    checker = TransactionChecker(
        instance=instance,
        settings=settings,
        clock=clock,
        calls=calls,
        counts=counts,
        folds=folds,
        questions=questions,
        answers=answers,
        producers=producers,
        webhooks=hooks,
        shares=shares,
        notices=notices,
    )
    return checker
