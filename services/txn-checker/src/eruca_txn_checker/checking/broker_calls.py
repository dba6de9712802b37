"""What is asked of brokers, each found by its name.

Where a broker is, is remembered until a request fails: then the name servers are asked again. By
then another broker may have come to that address, which knows nothing of this one's transactions.
So an answer that there is no such transaction counts only from the broker that was meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from eruca.aio.cluster.requests import parsed, send_model
from eruca.aio.http.transport import JSON_HEADER, path_segment, problem_error
from eruca.contract.errors import (
    BrokerNotFoundError,
    BrokerUnreachableError,
    ClientError,
    InternalError,
    TransactionNotFoundError,
    TransportError,
    UnavailableError,
)
from eruca.contract.models import BrokerStatus
from eruca.contract.transaction_events import Outcome
from eruca.contract.transactions import (
    CheckGrant,
    CheckRequest,
    Decide,
    DecisionReceipt,
    ExpireRequest,
    TransactionDetail,
)

if TYPE_CHECKING:
    from eruca import AsyncClient

AWAY: Final = (BrokerNotFoundError, ClientError, UnavailableError)
"""What says that a broker, or the way to it, is not there just now."""

_PATH: Final = "/v1/transactions"
_DECISIONS: Final = msgspec.json.Decoder(DecisionReceipt)
T = TypeVar("T")


class BrokerCalls:
    """Requests about transactions, and the time.

    Args:
        client: Knows the brokers.
        timeout: Seconds for each request.
    """

    def __init__(self, client: AsyncClient, *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._urls: dict[str, str] = {}

    async def check(
        self, broker_name: str, transaction_id: str, request: CheckRequest
    ) -> CheckGrant:
        """Be granted a check."""

        async def call(url: str) -> CheckGrant:
            target = f"{_PATH}/{path_segment(transaction_id)}:check"
            answer = await send_model(
                self._client.context.hot_transport,
                "POST",
                url,
                target,
                request,
                timeout=self._timeout,
            )
            return parsed(CheckGrant, answer, url + target)

        return await self._at(broker_name, call)

    async def expire(
        self, broker_name: str, transaction_id: str, request: ExpireRequest
    ) -> DecisionReceipt:
        """Give up on a transaction."""
        body = request.model_dump_json().encode()
        return await self._post(broker_name, f"{path_segment(transaction_id)}:expire", body)

    async def decide(
        self, broker_name: str, transaction_id: str, outcome: Outcome, request: Decide
    ) -> DecisionReceipt:
        """Commit or roll back."""
        body = msgspec.json.encode(request)
        return await self._post(broker_name, f"{path_segment(transaction_id)}:{outcome}", body)

    async def get(self, broker_name: str, transaction_id: str) -> TransactionDetail:
        """Return a transaction with its message, as its broker has it now."""

        async def call(url: str) -> TransactionDetail:
            target = f"{_PATH}/{path_segment(transaction_id)}"
            answer = await send_model(
                self._client.context.hot_transport, "GET", url, target, timeout=self._timeout
            )
            return parsed(TransactionDetail, answer, url + target)

        return await self._at(broker_name, call)

    async def status(self, broker_name: str) -> BrokerStatus:
        """Return how a broker is doing, and what time it is there."""
        return await self._at(broker_name, partial(self._status, broker_name))

    async def _status(self, broker_name: str, url: str) -> BrokerStatus:
        target = "/v1/status"
        answer = await send_model(
            self._client.context.hot_transport, "GET", url, target, timeout=self._timeout
        )
        status = parsed(BrokerStatus, answer, url + target)
        if status.broker_name != broker_name:
            raise TransportError(f"{url} is {status.broker_name} now, and not {broker_name}")
        return status

    async def _post(self, broker_name: str, target: str, body: bytes) -> DecisionReceipt:
        async def call(url: str) -> DecisionReceipt:
            answer = await self._client.context.hot_transport.request(
                "POST",
                url,
                f"{_PATH}/{target}",
                headers=(JSON_HEADER,),
                body=(body,),
                timeout=self._timeout,
            )
            what = f"POST {url}{_PATH}/{target}"
            if answer.status >= 300:
                raise problem_error(answer, what)
            try:
                return _DECISIONS.decode(answer.body)
            except msgspec.DecodeError as error:
                raise TransportError(f"{what}: the answer cannot be read: {error}") from error

        return await self._at(broker_name, call)

    async def _at(self, broker_name: str, call: Callable[[str], Awaitable[T]]) -> T:
        url = self._urls.get(broker_name)
        if url is None:
            url = self._urls[broker_name] = await self._client.admin.broker_url(broker_name)
        try:
            try:
                return await call(url)
            except TransactionNotFoundError:
                await self._status(broker_name, url)  # or it is another broker that has said so
                raise
        except (*AWAY, InternalError):
            self._urls.pop(broker_name, None)
            raise


def away(broker_name: str, error: Exception, *, then: str) -> BrokerUnreachableError:
    """Return the error for a client of ours whose broker is not there.

    Args:
        broker_name: Which broker.
        error: What the request to it ended with.
        then: What becomes of the client's request.
    """
    return BrokerUnreachableError(
        f"broker {broker_name!r} cannot be asked just now: {error}; {then}", retry_after_seconds=2
    )
