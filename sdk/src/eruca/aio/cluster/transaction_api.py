"""Transactions at a broker and checks at a transaction checker: one function per request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from eruca.aio.cluster.requests import ask
from eruca.aio.http.transport import (
    JSON_HEADER,
    UNREADABLE,
    HttpTransport,
    path_segment,
    problem_error,
    target_of,
)
from eruca.contract.errors import ErucaError, InternalError, TransportError
from eruca.contract.errors.problems import error_of_problem
from eruca.contract.transaction_events import Outcome
from eruca.contract.transactions import (
    BegunTransactions,
    CheckAnswer,
    CheckOutcome,
    Decide,
    DecidedTransactions,
    DecisionReceipt,
    NewTransaction,
    ProducerChecks,
    TransactionDetail,
    TransactionList,
    TransactionReceipt,
    TransactionToDecide,
)

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

_PATH: Final = "/v1/transactions"
_RECEIPTS: Final = msgspec.json.Decoder(TransactionReceipt)
_DECISIONS: Final = msgspec.json.Decoder(DecisionReceipt)
_MANY_BEGUN: Final = msgspec.json.Decoder(BegunTransactions)
_MANY_DECIDED: Final = msgspec.json.Decoder(DecidedTransactions)


class TransactionApi:
    """Requests to brokers, each given by its URL."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport

    async def begin(self, url: str, body: bytes, *, timeout: float) -> TransactionReceipt:
        """Store a half message; *body* is what :func:`begin_body` returns."""
        return await self._post(url, _PATH, body, _RECEIPTS, timeout)

    async def decide(
        self, url: str, transaction_id: str, outcome: Outcome, request: Decide, *, timeout: float
    ) -> DecisionReceipt:
        """Commit or roll back."""
        target = f"{_PATH}/{path_segment(transaction_id)}:{outcome}"
        return await self._post(url, target, msgspec.json.encode(request), _DECISIONS, timeout)

    async def begin_many(
        self, url: str, bodies: Sequence[bytes], *, timeout: float
    ) -> list[TransactionReceipt | ErucaError]:
        """Store half messages; *bodies* are those of :meth:`begin`. Return the outcome of each."""
        body = b'{"transactions":[%b]}' % b",".join(bodies)
        answer = await self._post(url, f"{_PATH}:begin", body, _MANY_BEGUN, timeout)
        return _outcomes(answer.results, len(bodies), url)

    async def decide_many(
        self, url: str, requests: Sequence[TransactionToDecide], *, timeout: float
    ) -> list[DecisionReceipt | ErucaError]:
        """Commit or roll back several transactions; return the outcome of each."""
        body = msgspec.json.encode({"transactions": requests})
        answer = await self._post(url, f"{_PATH}:decide", body, _MANY_DECIDED, timeout)
        return _outcomes(answer.results, len(requests), url)

    async def page(
        self,
        url: str,
        *,
        state: str | None,
        producer_group: str | None,
        cursor: str | None,
        limit: int,
        timeout: float,
    ) -> TransactionList:
        """Return a page of the undecided transactions."""
        target = target_of(
            _PATH, state=state, producer_group=producer_group, cursor=cursor, limit=limit
        )
        return await ask(TransactionList, self._transport, "GET", url, target, timeout=timeout)

    async def get(self, url: str, transaction_id: str, *, timeout: float) -> TransactionDetail:
        """Return a transaction, decided or not."""
        target = f"{_PATH}/{path_segment(transaction_id)}"
        return await ask(TransactionDetail, self._transport, "GET", url, target, timeout=timeout)

    async def _post(
        self,
        url: str,
        target: str,
        body: bytes,
        decoder: msgspec.json.Decoder[T],
        timeout: float,
    ) -> T:
        answer = await self._transport.request(
            "POST", url, target, headers=(JSON_HEADER,), body=(body,), timeout=timeout
        )
        if answer.status >= 300:
            raise problem_error(answer, f"POST {url}{target}")
        try:
            return decoder.decode(answer.body)
        except UNREADABLE as error:
            raise TransportError(f"POST {url}{target}: the answer is invalid: {error}") from error


class CheckApi:
    """Requests of one producer to transaction checkers, each given by its URL."""

    def __init__(
        self, transport: HttpTransport, group: str, *, client_id: str, timeout: float
    ) -> None:
        self._transport = transport
        self._path = f"/v1/producer-groups/{path_segment(group)}/checks"
        self._client_id = client_id
        self._timeout = timeout  # seconds, beyond the time that a request is held

    async def take(self, url: str, *, count_max: int, wait: float) -> ProducerChecks:
        """Wait for checks."""
        query: dict[str, Any] = {
            "client_id": self._client_id,
            "count_max": count_max,
            "wait_seconds": wait,
        }
        target = target_of(self._path, **query)
        return await ask(
            ProducerChecks, self._transport, "POST", url, target, timeout=self._timeout + wait
        )

    async def answer(self, url: str, check_id: str, answer: CheckAnswer) -> CheckOutcome:
        """Send the answer to a check."""
        target = f"/v1/checks/{path_segment(check_id)}"
        return await ask(
            CheckOutcome, self._transport, "POST", url, target, body=answer, timeout=self._timeout
        )


class _Outcome(Protocol[R_co]):
    """The outcome for one transaction of several."""

    @property
    def receipt(self) -> R_co | None:
        """None: there is a problem."""
        ...

    @property
    def problem(self) -> dict[str, Any] | None:
        """The problem document."""
        ...

    @property
    def retry_after_seconds(self) -> float | None:
        """Of the problem."""
        ...


def _outcomes(results: Sequence[_Outcome[T]], count: int, url: str) -> list[T | ErucaError]:
    """Return a receipt or an error for each of *count* transactions."""
    if len(results) != count:
        raise TransportError(
            f"{url}: expected {count} outcomes of transactions, found {len(results)}"
        )
    return [_error_of(result) if result.receipt is None else result.receipt for result in results]


def _error_of(result: _Outcome[object]) -> ErucaError:
    document = result.problem or {"detail": "an outcome is neither a receipt nor a problem"}
    status = document.get("status")
    return error_of_problem(
        document,
        status if isinstance(status, int) else InternalError.status,
        retry_after_seconds=result.retry_after_seconds,
    )


def begin_body(request: NewTransaction) -> bytes:
    """Return the request body that begins a transaction; the same at every attempt."""
    return msgspec.json.encode(request)
