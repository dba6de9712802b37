"""Requests to brokers, addressed by broker name.

A broker's URL is cached until a request fails; then the name servers are asked again. Meanwhile
another broker may have taken over that address, which knows none of this one's transactions. So
"no such transaction" counts only from the broker that was meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from eruca.contract.errors import (
    BrokerNotFoundError,
    BrokerUnreachableError,
    ClientError,
    InternalError,
    TransactionNotFoundError,
    TransportError,
    UnavailableError,
)
from eruca.contract.status import BrokerStatus
from eruca.contract.transaction_events import Outcome
from eruca.contract.transactions import (
    CheckGrant,
    CheckRequest,
    Decide,
    DecisionReceipt,
    ExpireRequest,
    TransactionDetail,
)
from eruca.services.cluster import parsed, send_model
from eruca.services.http import JSON_HEADER, path_segment, problem_error

if TYPE_CHECKING:
    from eruca import AsyncClient

AWAY: Final = (BrokerNotFoundError, ClientError, UnavailableError)
"""Errors that mean that a broker, or the way to it, is unreachable just now."""

_PATH: Final = "/v1/transactions"
_DECISIONS: Final = msgspec.json.Decoder(DecisionReceipt)
T = TypeVar("T")


class BrokerCalls:
    """Requests about transactions and the broker's time.

    Args:
        client: Finds the brokers.
        timeout: Seconds for each request.
    """

    def __init__(self, client: AsyncClient, *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._urls: dict[str, str] = {}

    async def check(
        self, broker_name: str, transaction_id: str, request: CheckRequest
    ) -> CheckGrant:
        """Request the grant of a check."""

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
        """Expire a transaction: roll it back and park it."""
        body = request.model_dump_json().encode()
        return await self._post(broker_name, f"{path_segment(transaction_id)}:expire", body)

    async def decide(
        self, broker_name: str, transaction_id: str, outcome: Outcome, request: Decide
    ) -> DecisionReceipt:
        """Commit or roll back."""
        body = msgspec.json.encode(request)
        return await self._post(broker_name, f"{path_segment(transaction_id)}:{outcome}", body)

    async def get(self, broker_name: str, transaction_id: str) -> TransactionDetail:
        """Return a transaction with its message, in its current state at the broker."""

        async def call(url: str) -> TransactionDetail:
            target = f"{_PATH}/{path_segment(transaction_id)}"
            answer = await send_model(
                self._client.context.hot_transport, "GET", url, target, timeout=self._timeout
            )
            return parsed(TransactionDetail, answer, url + target)

        return await self._at(broker_name, call)

    async def status(self, broker_name: str) -> BrokerStatus:
        """Return a broker's status, which includes its time."""
        return await self._at(broker_name, partial(self._status, broker_name))

    async def _status(self, broker_name: str, url: str) -> BrokerStatus:
        target = "/v1/status"
        answer = await send_model(
            self._client.context.hot_transport, "GET", url, target, timeout=self._timeout
        )
        status = parsed(BrokerStatus, answer, url + target)
        if status.broker_name != broker_name:
            raise TransportError(
                f"expected broker {broker_name} at {url}, found {status.broker_name}"
            )
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
                raise TransportError(f"{what}: the answer cannot be parsed: {error}") from error

        return await self._at(broker_name, call)

    async def _at(self, broker_name: str, call: Callable[[str], Awaitable[T]]) -> T:
        url = self._urls.get(broker_name)
        if url is None:
            url = self._urls[broker_name] = await self._client.admin.broker_url(broker_name)
        try:
            try:
                return await call(url)
            except TransactionNotFoundError:
                await self._status(broker_name, url)  # raises if another broker answers there now
                raise
        except (*AWAY, InternalError):
            self._urls.pop(broker_name, None)
            raise


def away(broker_name: str, error: Exception, *, then: str) -> BrokerUnreachableError:
    """Return the error for a client whose request needs an unreachable broker.

    Args:
        broker_name: The broker.
        error: The failure of the request to it.
        then: The consequence for the client's request.
    """
    return BrokerUnreachableError(
        f"broker {broker_name!r} is unreachable: {error}; {then}", retry_after_seconds=2
    )
