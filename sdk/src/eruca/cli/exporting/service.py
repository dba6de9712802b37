"""The query service for ``eruca export``: plans, and streams of rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from eruca.aio.http.transport import HttpResponse, path_segment, problem_error
from eruca.contract.errors import ErucaError, TransportError
from eruca.contract.exports import ExportPlan, ExportRange

if TYPE_CHECKING:
    import httpx

STALL_SECONDS: Final = 60.0  # without a byte; longer than the service waits for a broker


class ExportService:
    """Exports of one topic from any query service that answers.

    Args:
        http: Carries the requests.
        urls: The query services.
        topic: The topic.
    """

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str], topic: str) -> None:
        self._http = http
        self._urls = list(urls)
        self._path = f"/v1/exports/{path_segment(topic)}"

    async def plan(self, query: Mapping[str, str]) -> ExportPlan:
        """Return the plan of an export.

        Raises:
            ErucaError: The request is refused, or no query service answers.
        """
        left = len(self._urls)
        while True:
            left -= 1
            try:
                return await self._plan(query)
            except ErucaError as error:
                if not (left and error.retryable):
                    raise
                self.turn_away()

    async def rows(
        self, ranges: Sequence[ExportRange], query: Mapping[str, str], media_type: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an export, up to its end.

        Raises:
            ErucaError: The request is refused, or the answer ended early.
        """
        import httpx

        url = f"{self._urls[0]}{self._path}/records"
        parameters = {**query, "range": [a_range.text for a_range in ranges]}
        try:
            async with self._http.stream(
                "GET", url, params=parameters, headers={"accept": media_type}
            ) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    _raise_refusal(answer, url)
                async for piece in answer.aiter_raw():
                    yield piece
        except httpx.HTTPError as error:
            raise _failure(url, error) from error

    async def check(
        self, ranges: Sequence[ExportRange], query: Mapping[str, str], media_type: str
    ) -> None:
        """Request the first bytes of an export, if it has any.

        Raises:
            MessageDamagedError: Its first message is damaged.
            ErucaError: The request is refused for another reason, or there is no answer.
        """
        if ranges:
            async with aclosing(self.rows(ranges, query, media_type)) as pieces:
                await anext(pieces, None)

    async def _plan(self, query: Mapping[str, str]) -> ExportPlan:
        import httpx

        url = f"{self._urls[0]}{self._path}/plan"
        try:
            answer = await self._http.get(url, params=dict(query))
        except httpx.HTTPError as error:
            raise _failure(url, error) from error
        _raise_refusal(answer, url)
        return ExportPlan.model_validate_json(answer.content)

    def turn_away(self) -> None:
        """Use another query service from now on, if there is one."""
        self._urls.append(self._urls.pop(0))


def _raise_refusal(answer: httpx.Response, url: str) -> None:
    if answer.status_code != 200:
        told = HttpResponse(answer.status_code, dict(answer.headers), answer.content)
        raise problem_error(told, f"GET {url}")


def _failure(url: str, error: httpx.HTTPError) -> TransportError:
    return TransportError(f"GET {url}: {error or type(error).__name__}")
