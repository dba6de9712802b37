"""Check what the services of a starting cluster still lack, from their own answers.

Each function returns the unmet condition as a phrase that follows a service's name, or None. A
service that gives no proper answer is not up yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import httpx

from eruca.contract.errors.problems import PROBLEM_MEDIA_TYPE


class _NoAnswerError(Exception):
    """A service gave no proper answer; the text says what happened instead."""


async def lacks_readiness(client: httpx.AsyncClient, url: str) -> str | None:
    """Return why the service at *url* is not ready."""
    try:
        await _answer(client, f"{url}/readyz")
    except _NoAnswerError as error:
        return str(error)
    return None


async def lacks_brokers(
    client: httpx.AsyncClient, namesrv_url: str, brokers: set[str]
) -> str | None:
    """Return which of *brokers* a name server does not know.

    With none, the name server is not asked: one that has just started, and waits for brokers that
    are away, lists nothing yet.
    """
    if not brokers:
        return None
    try:
        answer = await _answer(client, f"{namesrv_url}/v1/brokers")
    except _NoAnswerError as error:
        return str(error)
    unknown = brokers - {group["broker_name"] for group in answer["brokers"]}
    return f"does not know {', '.join(sorted(unknown))}" if unknown else None


async def lacks_work(
    client: httpx.AsyncClient,
    url: str,
    *,
    brokers: set[str],
    namespace: str,
    namesrv_urls: Sequence[str],
) -> str | None:
    """Return why a service cannot be found, or which logs no instance follows.

    Args:
        client: Sends the requests.
        url: The service's URL.
        brokers: The brokers whose logs must be followed.
        namespace: Namespace of the key-value table in which the service is announced.
        namesrv_urls: Name servers that must all know it.
    """
    try:
        status = await _answer(client, f"{url}/v1/status")
        followed = {
            log["broker_name"] for log in status["followed"] if log["followed_by"] is not None
        }
        if unfollowed := brokers - followed:
            return f"says that nobody follows {', '.join(sorted(unfollowed))}"
        for namesrv_url in namesrv_urls:
            table = await _answer(client, f"{namesrv_url}/v1/kv/{namespace}")
            if status["name"] not in table["entries"]:
                return f"is not known to {namesrv_url}"
    except _NoAnswerError as error:
        return str(error)
    return None


async def _answer(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    try:
        answer = await client.get(url)
    except httpx.TransportError as error:
        raise _NoAnswerError(f"had no answer from {url} ({type(error).__name__})") from error
    if answer.status_code != httpx.codes.OK:
        raise _NoAnswerError(f"had {answer.status_code} from {url}{_reason(answer)}")
    return cast(dict[str, Any], answer.json())


def _reason(answer: httpx.Response) -> str:
    """Return a problem document's text as a suffix; empty for any other answer."""
    if answer.headers.get("content-type", "") != PROBLEM_MEDIA_TYPE:
        return ""
    problem = answer.json()
    fix = f"; {problem['fix']}" if "fix" in problem else ""
    return f": {problem['detail']}{fix}"
