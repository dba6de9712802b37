"""Send a decision to the broker, and retry until it answers or the deadline passes.

Repeating a decision is harmless, so every failed attempt is retried. If a decision does not reach
the broker, the transaction stays pending, and the checker will check it.

Source: RocketMQ 5.3, ``DefaultMQProducerImpl.endTransaction``, which sends it once, one-way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from eruca.aio.transactions.gatherer import Gatherer
from eruca.contract.errors import (
    ErucaError,
    InternalError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
)
from eruca.contract.transactions import Decide, TransactionToDecide
from eruca.core.retry_policy import attempt_seconds, next_attempt

if TYPE_CHECKING:
    from eruca.aio.cluster.routes import Routes
    from eruca.aio.cluster.transaction_api import TransactionApi
    from eruca.contract.transaction_events import Outcome
    from eruca.contract.transactions import DecisionReceipt
    from eruca.core.producing.transactions import HalfMessage

_MAY_BE_REPEATED: Final = (TransportError, TimeoutExpiredError, UnavailableError, InternalError)
_ATTEMPTS_LEFT: Final = 2  # at any time: each gets half of the remaining time
_SECONDS_MIN: Final = 0.01

_logger = logging.getLogger(__name__)


class Decision(NamedTuple):
    """A decision about a transaction."""

    half: HalfMessage
    url: str  # of the broker where the transaction began
    outcome: Outcome
    reason: str | None


class Decisions:
    """Delivers the decisions of one producer group.

    Args:
        api: Requests to the brokers.
        routes: The client's.
        group: The producer group.
        timeout: Seconds for all attempts at one decision.
    """

    def __init__(self, api: TransactionApi, routes: Routes, group: str, *, timeout: float) -> None:
        self._gatherer: Gatherer[TransactionToDecide, DecisionReceipt] = Gatherer(
            lambda url, request, timeout: api.decide(
                url,
                request.transaction_id,
                request.outcome,
                Decide(producer_group=request.producer_group, reason=request.reason),
                timeout=timeout,
            ),
            lambda url, requests, timeout: api.decide_many(url, requests, timeout=timeout),
        )
        self._api = api
        self._routes = routes
        self._group = group
        self._timeout = timeout

    async def deliver(
        self, half: HalfMessage, url: str, outcome: Outcome, reason: str | None
    ) -> DecisionReceipt | None:
        """Return the broker's receipt; None if the broker did not answer in time.

        Args:
            half: The half message.
            url: The broker where the transaction began; a URL in the current route takes
                precedence.
            outcome: The decision.
            reason: Why, for operators who look at the transaction.

        Raises:
            AlreadyDecidedError: The transaction has the opposite decision.
            TransactionNotFoundError: Its broker does not know it, or not any more.
            ErucaError: The broker refuses the decision; a retry fails as well.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        decision = Decision(half, url, outcome, reason)
        request = self._request(decision)
        attempt = 0
        while True:
            attempt += 1
            url = self.url_of(decision)
            left = max(deadline - loop.time(), _SECONDS_MIN)  # a busy loop runs late
            seconds = attempt_seconds(left, _ATTEMPTS_LEFT)
            try:
                return await self._gatherer.ask(url, request, size=0, timeout=seconds)
            except _MAY_BE_REPEATED as error:
                retry = next_attempt(
                    error,
                    attempt=attempt,
                    attempts_max=attempt + 1,
                    remaining_seconds=deadline - loop.time(),
                    has_other_broker=False,
                    patience_seconds=error.retry_after_seconds or 0.0,
                )
                if retry is None:
                    self._log_left(half, outcome, error)
                    return None
                if retry.refresh_route:
                    self._routes.refresh_soon(half.message.topic)
            await asyncio.sleep(retry.wait_seconds)

    async def told(
        self, url: str, decisions: Sequence[Decision]
    ) -> Sequence[DecisionReceipt | ErucaError | None]:
        """Send decisions to the broker at *url* once, in one request.

        Return the receipt or the refusal of each; None: it must be delivered again, alone.
        """
        requests = [self._request(decision) for decision in decisions]
        seconds = attempt_seconds(self._timeout, _ATTEMPTS_LEFT)
        try:
            outcomes = await self._api.decide_many(url, requests, timeout=seconds)
        except ErucaError:
            return [None] * len(decisions)  # not even a refusal of the request concerns each
        return [None if isinstance(it, _MAY_BE_REPEATED) else it for it in outcomes]

    def url_of(self, decision: Decision) -> str:
        """Return the URL of the decision's broker: the one in the route, if there is one."""
        half = decision.half
        view = self._routes.cached_publish_view(half.message.topic)
        return decision.url if view is None else view.urls.get(half.queue.broker_name, decision.url)

    def _request(self, decision: Decision) -> TransactionToDecide:
        return TransactionToDecide(
            transaction_id=decision.half.transaction_id,
            outcome=decision.outcome,
            producer_group=self._group,
            reason=decision.reason,
        )

    def _log_left(self, half: HalfMessage, outcome: Outcome, error: ErucaError) -> None:
        _logger.warning(
            "the %s of transaction %s of %s did not reach %s, so it is left to the checker: %s",
            outcome,
            half.transaction_id,
            self._group,
            half.queue.broker_name,
            error,
        )
