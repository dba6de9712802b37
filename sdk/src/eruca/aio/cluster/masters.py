"""Find the brokers of a topic or a group, and send a request to all of them.

A change of a topic or group goes to every master that has it. If one of them is unreachable, the
call fails, and the changes on the others stay. Repeating a call is harmless. A caller that only
reads may collect the brokers that do not answer, as long as one broker answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import BaseModel

from eruca.aio.cluster.requests import parsed, send_model
from eruca.aio.http.transport import HttpResponse, problem_error
from eruca.contract.errors import (
    BrokerNotFoundError,
    ErucaError,
    NoRouteError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
)
from eruca.contract.fields import MASTER_ID
from eruca.contract.routes import BrokerGroup, BrokerList
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.route_table import address_for

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_NO_ANSWER: Final = (TransportError, TimeoutExpiredError, UnavailableError)


class Masters:
    """Finds the masters of one cluster's brokers."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    async def brokers(self) -> list[BrokerGroup]:
        """Return every live broker.

        If no broker is registered at a name server, the others are asked as well.

        Raises:
            NameServersUnreachableError: No name server answered.
            NameServerSettlingError: A name server has just started, and none knows a broker yet.
        """
        name_servers = self._context.name_servers
        for _ in name_servers.urls:
            answer = await self.ask_name_server("GET", "/v1/brokers")
            brokers = parsed(BrokerList, answer, "/v1/brokers").brokers
            if brokers:
                self._learn(brokers)
                return brokers
            name_servers.rotate()
        return []

    def _learn(self, groups: list[BrokerGroup]) -> None:
        for group in groups:
            urls = {broker.broker_id: broker.urls for broker in group.brokers}
            self._context.masters_book.learn(group.broker_name, group.epoch, urls)

    async def all(
        self, cluster: str | None = None, broker_name: str | None = None
    ) -> dict[str, str]:
        """Return the URLs of live masters by broker name; at least one.

        Raises:
            BrokerNotFoundError: No live broker matches.
        """
        urls = {
            group.broker_name: self.url(broker.urls)
            for group in await self.brokers()
            for broker in group.brokers
            if broker.broker_id == MASTER_ID
            and cluster in (None, group.cluster)
            and broker_name in (None, group.broker_name)
        }
        if not urls:
            what = " ".join(
                (
                    "no live broker",
                    *([f"called {broker_name}"] if broker_name is not None else []),
                    *([f"in cluster {cluster}"] if cluster is not None else []),
                )
            )
            raise BrokerNotFoundError(
                f"{what} is registered at {self._context.name_servers.current_url}",
                fix="start one, or see: eruca status",
            )
        return urls

    async def of_broker(self, broker_name: str) -> str:
        """Return the URL of a broker's master; raises BrokerNotFoundError."""
        return (await self.all(None, broker_name))[broker_name]

    async def of_topic(self, topic: str) -> dict[str, str]:
        """Return the URLs of the masters that have *topic*, by broker name; at least one."""
        view = await self._context.routes.complete_view(topic)
        if not view.urls:
            raise NoRouteError(f"no broker of topic {topic} has a live master")
        return dict(view.urls)

    async def url_of(self, queue: MessageQueue) -> str:
        """Return the URL of the broker that has *queue*."""
        view = await self._context.routes.subscribe_view(queue.topic)
        return view.url_of(queue)

    def url(self, urls: Mapping[str, str]) -> str:
        """Return the URL of a broker for this client's network."""
        return address_for(urls, self._context.settings.network)

    async def ask_name_server(self, method: str, target: str) -> HttpResponse:
        """Return the answer of the first name server that answers."""
        answer = await self._context.name_servers.request(
            method, target, timeout=self._context.settings.timeout_seconds
        )
        if answer.status >= 300:
            raise problem_error(answer, f"{method} {target}")
        return answer

    async def send(
        self, method: str, url: str, target: str, body: BaseModel | None = None
    ) -> HttpResponse:
        """Return the answer of the server at *url* within the client's timeout; raise a refusal."""
        seconds = self._context.settings.timeout_seconds
        return await send_model(self._context.transport, method, url, target, body, timeout=seconds)

    async def call(
        self, model: type[M], method: str, url: str, target: str, body: BaseModel | None = None
    ) -> M:
        """Send a request, as :meth:`send` does, and return the answer as *model*."""
        return parsed(model, await self.send(method, url, target, body), url + target)


async def on_each(
    urls: Mapping[str, str],
    ask: Callable[[str], Awaitable[T]],
    unanswered: dict[str, ErucaError] | None = None,
) -> dict[str, T]:
    """Return each answer by name; wait for all, then raise the first error.

    If *unanswered* is given, it collects the brokers that do not answer. Then it is an error only
    if no broker answers.
    """
    outcomes: Sequence[T | BaseException]
    if len(urls) == 1:  # most topics' masters; saves a task
        outcomes = [await _outcome(ask, *urls.values())]
    else:
        outcomes = await asyncio.gather(*map(ask, urls.values()), return_exceptions=True)
    answers: dict[str, T] = {}
    silent: dict[str, ErucaError] = {}
    for name, outcome in zip(urls, outcomes, strict=True):
        if unanswered is not None and isinstance(outcome, _NO_ANSWER):
            silent[name] = outcome
        elif isinstance(outcome, BaseException):
            outcome.add_note(f"from {name}")
            raise outcome
        else:
            answers[name] = outcome
    if unanswered is not None:
        unanswered.update(silent)
        if silent and not answers:
            raise next(iter(silent.values()))
    return answers


async def _outcome(ask: Callable[[str], Awaitable[T]], url: str) -> T | ErucaError:
    try:
        return await ask(url)
    except ErucaError as error:
        return error


async def answered(
    broker_name: str,
    stream: AsyncIterator[T],
    unanswered: dict[str, ErucaError] | None = None,
) -> AsyncIterator[T]:
    """Yield the items of a broker's *stream* until the broker stops answering.

    That raises, or is put into *unanswered* if given.
    """
    try:
        async for item in stream:
            yield item
    except _NO_ANSWER as error:
        if unanswered is None:
            raise
        unanswered[broker_name] = error


async def on_those_that_know(
    urls: Mapping[str, str],
    ask: Callable[[str], Awaitable[T]],
    unknown: ErucaError,
    unanswered: dict[str, ErucaError] | None = None,
) -> dict[str, T]:
    """Return the answers of all servers that do not raise an error of *unknown*'s class.

    Raises:
        ErucaError: *unknown* if all of them raise its class, because one server speaks only for
            itself; else the first other error. If *unanswered* is given, it collects servers that
            do not answer, as in :func:`on_each`, unless no other server knows.
    """
    known = await known_by(urls, ask, type(unknown), unanswered)
    if not known:
        raise next(iter(unanswered.values())) if unanswered else unknown
    return known


async def known_by(
    urls: Mapping[str, str],
    ask: Callable[[str], Awaitable[T]],
    unknown: type[ErucaError],
    unanswered: dict[str, ErucaError] | None = None,
) -> dict[str, T]:
    """Return the answers of all servers that do not raise *unknown*; possibly none."""

    async def ask_one(url: str) -> list[T]:
        try:
            return [await ask(url)]
        except unknown:
            return []

    answers = await on_each(urls, ask_one, unanswered)
    return {name: answer[0] for name, answer in answers.items() if answer}
