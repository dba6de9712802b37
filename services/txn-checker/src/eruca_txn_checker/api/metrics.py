"""The checker's own metrics, read from plain attributes at each scrape.

Counts that only PostgreSQL knows, such as pending transactions, are not read here: a scrape must
not wait for it. Brokers count their pending and parked transactions themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.metrics import following_metrics
from eruca_postgres.notices import Notices
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.due_work import CheckCounts
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.checking.webhooks import Webhooks
from eruca_txn_checker.projection.fold import FoldCounts

_PREFIX = "eruca_txn_checker_"


class CheckerMetrics(Collector):
    """The samples of one instance."""

    def __init__(
        self,
        *,
        shares: BrokerShares[TransactionWork],
        folds: FoldCounts,
        counts: CheckCounts,
        questions: Questions,
        answers: Answers,
        producers: Producers,
        webhooks: Webhooks,
        notices: Notices,
    ) -> None:
        self._shares = shares
        self._folds = folds
        self._counts = counts
        self._questions = questions
        self._answers = answers
        self._producers = producers
        self._webhooks = webhooks
        self._notices = notices

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        yield from following_metrics(_PREFIX, self._shares)
        yield _counter(
            "unreadable",
            "Transactions with a corrupt event, looked up at their brokers instead",
            self._folds.unreadable,
        )
        yield from self._checks()
        yield from self._asking()

    def _checks(self) -> Iterator[Metric]:
        counts, questions = self._counts, self._questions.counts
        yield _counter("checks", "Checks granted by brokers", counts.granted)
        yield _counter("given_up", "Transactions expired after their last check", counts.given_up)
        yield _counter(
            "checks_refused",
            "Checks that brokers refused as needless or out of turn",
            counts.refused,
        )
        yield _counter(
            "checks_put_off",
            "Checks opened again because nobody took them in time: more than can be answered",
            counts.put_off,
        )
        yield _counter(
            "forgotten", "Transactions that their brokers no longer knew", counts.forgotten
        )
        yield _counter("questions", "Checks sent to a producer or webhook", questions.asked)
        yield _counter(
            "questions_spared",
            "Checks not sent because the transaction had been decided meanwhile",
            questions.decided_meanwhile,
        )
        yield _counter(
            "questions_put_off",
            "Checks taken but not sent: broker or producer unreachable, or no room",
            questions.given_back,
        )

    def _asking(self) -> Iterator[Metric]:
        answers, hooks = self._answers.counts, self._webhooks
        answered = CounterMetricFamily(_PREFIX + "answers", "Answers to checks", labels=["answer"])
        for answer, count in answers.answers.items():
            answered.add_metric([answer], count)
        yield answered
        yield _counter(
            "answers_too_late", "Answers after the opposite was decided", answers.too_late
        )
        yield _counter(
            "answers_told_again",
            "Answers retried at brokers that were unreachable",
            answers.told_again,
        )
        yield _gauge(
            "notices",
            "1 while notices of other instances arrive; 0: PostgreSQL is polled instead",
            int(self._notices.is_listening),
        )
        held = self._producers.held
        yield _gauge("held_requests", "Producers' requests being held", len(held))
        yield _gauge("held_requests_max", "Maximum of held requests", held.maximum)
        yield _gauge("webhook_calls", "Webhook calls in progress", hooks.under_way)
        yield _counter("webhook_attempts", "Webhook calls made", hooks.counts.attempts)
        yield _counter("webhook_answers", "Webhook calls answered", hooks.counts.answered)
        yield _counter(
            "webhook_failures", "Checks that a webhook did not answer", hooks.counts.failed
        )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(_PREFIX + name, meaning, value=value)
