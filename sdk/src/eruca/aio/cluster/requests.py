"""Requests and answers that are pydantic models: build, send, parse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

import pydantic
from pydantic import BaseModel

from eruca.aio.http.transport import JSON_HEADER, HttpResponse, HttpTransport, problem_error
from eruca.contract.errors import TransportError, ValidationError
from eruca.contract.groups import GroupSettings
from eruca.contract.topics import TopicSettings

M = TypeVar("M", bound=BaseModel)


async def ask(
    model: type[M],
    transport: HttpTransport,
    method: str,
    url: str,
    target: str,
    *,
    body: BaseModel | None = None,
    timeout: float,
) -> M:
    """Send a request as :func:`send_model` does, and return its answer as *model*."""
    answer = await send_model(transport, method, url, target, body, timeout=timeout)
    return parsed(model, answer, url + target)


async def send_model(
    transport: HttpTransport,
    method: str,
    url: str,
    target: str,
    body: BaseModel | None = None,
    *,
    timeout: float,
    headers: Sequence[tuple[str, str]] = (),
    exclude_none: bool = False,
) -> HttpResponse:
    """Send a request whose body, if any, is a model, and return its answer; raise a refusal."""
    text = ""
    if body is not None:
        # A field that is not set keeps its value at the broker, so it is not sent.
        is_settings = isinstance(body, (GroupSettings, TopicSettings))
        text = body.model_dump_json(
            include=body.model_fields_set if is_settings else None,
            by_alias=True,
            exclude_none=exclude_none,
        )
    answer = await transport.request(
        method,
        url,
        target,
        headers=headers if body is None else (*headers, JSON_HEADER),
        body=(text.encode(),) if text else (),
        timeout=timeout,
    )
    if answer.status >= 300:
        raise problem_error(answer, f"{method} {url}{target}")
    return answer


@contextmanager
def checked_request() -> Iterator[None]:
    """Convert the errors of building a request from a caller's values.

    Raises:
        ValidationError: A value is not allowed; the same error as the service would return.
    """
    try:
        yield
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        first = faults[0]
        name = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ValidationError(f"{name}: {reason}; found {first['input']!r:.80}{more}") from None


def parsed(model: type[M], answer: HttpResponse, what: str) -> M:
    """Return an answer's body as *model*."""
    try:
        return model.model_validate_json(answer.body)
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "body"
        raise TransportError(
            f"{what}: the answer is invalid: {where}: {fault['msg']}",
            fix="check that the expected service runs at this URL: eruca doctor",
        ) from error


def utc_text(moment: datetime) -> str:
    """Return *moment* as RFC 3339 in UTC.

    Raises:
        ValidationError: It has no time zone, so the instant is ambiguous; or it has no time in
            UTC.
    """
    if moment.tzinfo is None:
        raise ValidationError(
            f"timestamp: expected a time with a time zone, found {moment!r}",
            fix="use a time such as datetime.now(UTC)",
        )
    try:
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise ValidationError(
            f"timestamp: {moment.isoformat()} is out of range: it has no time in UTC",
            fix="use a time of the years 1 to 9999 in UTC",
        ) from None
