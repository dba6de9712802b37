"""Requests to the controllers, any of which reads and changes the rows and the policy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from eruca.aio.client import AsyncClient
    from eruca.aio.http.transport import HttpResponse, HttpTransport
    from eruca.contract.broker_groups import (
        BrokerGroupChange,
        BrokerGroupPut,
        BrokerGroupView,
    )

VARIABLE: Final = "ERUCA_CONTROLLER_URLS"
_ANSWER_SECONDS: Final = 10.0  # for a controller's answer, which waits for its database

ControllerOption = Annotated[
    str | None,
    typer.Option(
        "--controller",
        metavar="URL",
        help=f"Controllers, separated by ';' [{VARIABLE}, else as name servers know them].",
    ),
]

_T = TypeVar("_T")
_M = TypeVar("_M", bound="BaseModel")


async def controller_urls(client: AsyncClient, given: str | None) -> tuple[str, ...]:
    """Return the URLs of the option, else of the environment, else those that name servers know.

    Raises:
        ValidationError: A value is not a URL.
        NoRouteError: The name servers know no controller.
        NameServersUnreachableError: No name server answered.
    """
    from eruca.aio.cluster.instances import found_instances
    from eruca.core.routing.services import CONTROLLER

    if urls := CONTROLLER.given(os.environ, given, "--controller"):
        return urls
    return tuple(
        await found_instances(
            CONTROLLER, client.context.name_servers, timeout=client.settings.timeout_seconds
        )
    )


class Controllers:
    """Reads and changes rows at the first controller that answers.

    Args:
        transport: Sends the requests.
        urls: The controllers'.
    """

    def __init__(self, transport: HttpTransport, urls: Sequence[str]) -> None:
        assert urls
        self._transport = transport
        self._urls = urls

    async def group(self, broker: str) -> BrokerGroupView:
        """Return the row of a broker group.

        Raises:
            NotFoundError: There is no such group.
        """
        from eruca.contract.broker_groups import BrokerGroupView

        target = _target(broker)
        answer = await self._request("GET", target)
        return _parsed(BrokerGroupView, answer, target)

    async def history(self, broker: str, *, limit: int) -> list[BrokerGroupChange]:
        """Return the last changes of a row, the newest first.

        Raises:
            NotFoundError: There is no such group.
        """
        from eruca.aio.http.transport import target_of
        from eruca.contract.broker_groups import BrokerGroupHistory

        found: list[BrokerGroupChange] = []
        cursor: str | None = None
        while True:
            target = target_of(f"{_target(broker)}/history", cursor=cursor)
            page = _parsed(BrokerGroupHistory, await self._request("GET", target), target)
            found += page.changes
            cursor = page.next_cursor
            if cursor is None or len(found) >= limit:
                return found[:limit]

    async def change(
        self, broker: str, row: BrokerGroupPut, *, version: str | None
    ) -> BrokerGroupView:
        """Replace the row if it still has *version*; None: create it.

        Raises:
            PreconditionFailedError: Somebody else has changed it first.
        """
        from eruca.aio.http.transport import JSON_HEADER
        from eruca.contract.broker_groups import BrokerGroupView

        condition = ("if-none-match", "*") if version is None else ("if-match", f'"{version}"')
        target = _target(broker)
        # A controller may have made the change although it did not answer. It recognizes the same
        # change, so that it may be repeated at the next controller.
        answer = await self._request(
            "PUT", target, headers=(JSON_HEADER, condition), body=row.model_dump_json().encode()
        )
        return _parsed(BrokerGroupView, answer, target)

    async def answered(
        self,
        model: type[_M],
        method: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> _M:
        """Return the first controller's answer, parsed."""
        from eruca.aio.http.transport import JSON_HEADER

        sent = (*headers, JSON_HEADER) if body else headers
        answer = await self._request(method, target, headers=sent, body=body)
        return _parsed(model, answer, target)

    async def _request(
        self,
        method: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> HttpResponse:
        from eruca.aio.http.transport import problem_error
        from eruca.contract.errors import (
            ErucaError,
            TimeoutExpiredError,
            TransportError,
            UnavailableError,
        )

        failed: ErucaError | None = None
        for url in self._urls:
            try:
                answer = await self._transport.request(
                    method,
                    url,
                    target,
                    headers=headers,
                    body=(body,) if body else (),
                    timeout=_ANSWER_SECONDS,
                )
                if answer.status >= 300:
                    raise problem_error(answer, f"{method} {url}{target}")
            except (TransportError, TimeoutExpiredError, UnavailableError) as error:
                failed = error
            else:
                return answer
        assert failed is not None
        failed.fix = f"start a controller, or name one that runs in --controller or {VARIABLE}"
        raise failed


def _target(broker: str) -> str:
    from eruca.aio.http.transport import path_segment

    return f"/v1/broker-groups/{path_segment(broker)}"


def _parsed(model: type[_M], answer: HttpResponse, target: str) -> _M:
    from eruca.aio.cluster.requests import parsed

    return parsed(model, answer, target)
