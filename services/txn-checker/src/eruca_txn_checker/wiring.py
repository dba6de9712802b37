"""The transaction checker, put together: the only place that says who is made of what.

Read it from the top, in the order of starting; it stops in the opposite order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from eruca.contract.names import CHECKERS_NAMESPACE
from eruca_access.reporting import at_name_servers, reporting_audit
from eruca_chassis.admission.held import HeldPlaces
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.routes.parts import Parts
from eruca_chassis.running.settings import split_urls
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.instance import Instance, ServiceKind, instance_of
from eruca_postgres.log_projector import LogProjector
from eruca_postgres.notices import Notices
from eruca_txn_checker.api.metrics import CheckerMetrics
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.broker_calls import BrokerCalls
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.due_work import CheckCounts, DueSettings, DueWork
from eruca_txn_checker.checking.noticed_work import NoticedWork
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


@asynccontextmanager
async def wired(
    app: ServiceApp, *, settings: TxnCheckerSettings, clock: Clock
) -> AsyncIterator[None]:
    """Run the checker for the block, and let *app* answer requests by its parts."""
    parts = app.parts
    parts.add(settings, TxnCheckerSettings)
    async with AsyncExitStack() as stack:
        name_servers = split_urls(settings.namesrv_urls)
        await stack.enter_async_context(
            reporting_audit(
                app, lambda transport: at_name_servers(transport, name_servers, settings.network)
            )
        )
        instance = parts.add(await stack.enter_async_context(instance_of(settings, KIND, clock)))
        postgres_clock = parts.add(PostgresClock(instance.database, clock))
        held = HeldPlaces(maximum=settings.held_requests_max)
        app.stop_hooks.append(held.release_all)
        _compose(parts, settings, instance, held, postgres_clock)
        app.open_routes()
        stack.enter_context(app.telling(parts.make(CheckerMetrics)))
        noticed = parts[NoticedWork]

        async def compare_clocks() -> None:
            if await postgres_clock.compare():
                noticed.wake()

        forgetting = BackgroundLoop(
            "forgetting",
            ForgottenRows(instance.database).step,
            period_seconds=FORGETTING_SECONDS,
        )
        await stack.enter_async_context(
            instance.at_work(
                app,
                parts[BrokerShares[TransactionWork]],
                [parts[Notices], forgetting, parts[Producers], parts[Webhooks]],
                prepare=compare_clocks,
            )
        )
        stack.callback(app.begin_stop)
        yield


def _compose(
    parts: Parts,
    settings: TxnCheckerSettings,
    instance: Instance,
    held: HeldPlaces,
    clock: Clock,
) -> None:
    """Make all parts that answer requests and work on brokers, and add them to *parts*."""
    database, client = parts.add(instance.database), parts.add(instance.client)
    rules = settings.rules
    calls = parts.add(BrokerCalls(client, timeout=settings.broker_seconds))
    questions = parts.add(Questions(database, calls, clock))
    answers = parts.add(Answers(database, calls, clock))
    counts, folds = parts.add(CheckCounts()), parts.add(FoldCounts())

    # Asking producers.

    def poll_seconds() -> float:
        """Return how often to poll PostgreSQL: rarely while notices arrive."""
        shortest = settings.poll_seconds
        return max(settings.idle_poll_seconds, shortest) if notices.is_listening else shortest

    producers = parts.add(
        Producers(
            database,
            questions,
            held,
            clock,
            interval_ms=rules.interval_ms,
            poll_seconds=poll_seconds,
        )
    )
    webhooks = parts.add(
        Webhooks(
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
    )

    # Working on brokers.
    due_settings = DueSettings(
        rules=rules,
        checker=instance.name,
        counts_unreachable=settings.counts_unreachable,
        reachable_ms=round(settings.reachable_seconds * 1000),
        parallel_max=settings.checks_parallel_max,
        history_ms=round(settings.history_hours * 3_600_000),
    )

    def tell(groups: set[str]) -> None:
        producers.wake(groups)
        webhooks.wake()

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
            begins_on_disk=True,  # nothing pending lies before it
        )
        work = TransactionWork(projector, due, poll_seconds=settings.poll_seconds)
        return work

    shares = parts.add(instance.share_brokers(work_on))
    noticed = parts.add(NoticedWork(producers, webhooks, shares))
    notices = parts.add(
        Notices(database, instance.name, on_notice=noticed.heed, on_gap=noticed.wake)
    )
