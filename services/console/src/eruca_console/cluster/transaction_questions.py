"""The transactions: undecided ones, and one with its events and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, urlencode

import msgspec

from eruca.contract.errors import ErucaError
from eruca.contract.messages import PulledMessage
from eruca.contract.transactions import (
    CheckedTransaction,
    TransactionAsOf,
    TransactionDetail,
    TransactionSummary,
)
from eruca.services.cluster import parsed, send_model
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.questions import Gathered, Questions

PAST_SECONDS: Final = 60.0  # an earlier state stays the same, and a live page asks again and again


@dataclass(frozen=True, slots=True)
class ShownTransaction:
    """A transaction as its broker knows it.

    Attributes:
        detail: Its state and its events.
        body: The half message's, as it was sent; None: retention has deleted it, or it is damaged.
    """

    detail: TransactionDetail
    body: bytes | None


class TransactionQuestions(Questions):
    """Questions about transactions."""

    async def transactions(
        self, state: Literal["pending", "parked"], maximum: int
    ) -> Answered[Gathered[Sequence[TransactionSummary]]]:
        """Return the oldest transactions of a state."""

        async def ask(silent: dict[str, ErucaError]) -> Sequence[TransactionSummary]:
            found: list[TransactionSummary] = []
            undecided = self.client.admin.transactions.undecided(state=state, unanswered=silent)
            async for summary in undecided:
                found.append(summary)
                if len(found) == maximum:
                    break
            return found

        return await self.gathered(("transactions", state, maximum), ask)

    async def transaction(
        self, broker_name: str, transaction_id: str
    ) -> Answered[ShownTransaction]:
        """Return a transaction by its broker.

        Raises:
            BrokerNotFoundError: The broker is not registered.
            TransactionNotFoundError: It does not know the transaction.
        """
        target = f"/v1/transactions/{quote(transaction_id, safe='')}"

        async def ask() -> ShownTransaction:
            url = await self.client.admin.broker_url(broker_name)
            context = self.client.context
            answer = await send_model(
                context.transport, "GET", url, target, timeout=context.settings.timeout_seconds
            )
            detail = parsed(TransactionDetail, answer, url + target)
            # The model's numbers are floats; a body is shown with the digits that were sent.
            raw = msgspec.json.decode(answer.body, type=dict[str, msgspec.Raw])
            half = msgspec.json.decode(raw["message"], type=PulledMessage | None)
            body = None if half is None else half.body
            return ShownTransaction(detail, None if body is None else body.octets())

        return await self.cache.get(("transaction", broker_name, transaction_id), ask)

    async def transaction_as_of(
        self, broker_name: str, transaction_id: str, log_offset: int
    ) -> Answered[TransactionAsOf]:
        """Return its state as of a log offset; raises as ``admin.transactions.as_of``."""

        async def ask() -> TransactionAsOf:
            return await self.client.admin.transactions.as_of(
                transaction_id, broker_name=broker_name, log_offset=log_offset
            )

        key = ("transaction as of", broker_name, transaction_id, log_offset)
        return await self.cache.get(key, ask, life_seconds=PAST_SECONDS)

    async def checks(self, broker_name: str, transaction_id: str) -> Answered[CheckedTransaction]:
        """Return a transaction with its checks, by a transaction checker.

        Raises:
            NoRouteError: No checker is known.
            TransactionNotFoundError: It has not read of it yet, or has forgotten it.
        """
        query = urlencode({"broker_name": broker_name})
        target = f"/v1/transactions/{quote(transaction_id, safe='')}?{query}"

        async def ask() -> CheckedTransaction:
            answer, url = await self.checkers.request("GET", target)
            return parsed(CheckedTransaction, answer, url + target)

        return await self.cache.get(("checks", broker_name, transaction_id), ask)
