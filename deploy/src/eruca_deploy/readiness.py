"""What the services of a cluster still lack while it starts, by what they say of each other.

Each function returns that as words that follow a service's name, and None once nothing is lacking.
Whoever does not answer as such a service does is not there yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import httpx

from eruca.contract.errors.problems import PROBLEM_MEDIA_TYPE


class _NoAnswerError(Exception):
    """A service did not answer as it does when it is ready; the text says what it did."""


async def lacks_readiness(client: httpx.AsyncClient, url: str) -> str | None:
    """Tell why the service at *url* cannot do its work."""
    try:
        await _answer(client, f"{url}/readyz")
    except _NoAnswerError as error:
        return str(error)
    return None


async def lacks_brokers(
    client: httpx.AsyncClient, namesrv_url: str, brokers: set[str]
) -> str | None:
    """Tell which of *brokers* a name server does not know.

    Where there are none it is not asked: one that has just started, and waits for others that are
    away, lists nothing yet.
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
    """Tell why a service cannot be found or does not, with others, follow brokers' logs.

    Args:
        client: Asks.
        url: The service's.
        brokers: Whose logs.
        namespace: Of the key-value table, where it says under its name where it is.
        namesrv_urls: Each of these must know it.
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
    """Return what a problem document says, in words that follow; nothing for any other answer."""
    if answer.headers.get("content-type", "") != PROBLEM_MEDIA_TYPE:
        return ""
    problem = answer.json()
    fix = f"; {problem['fix']}" if "fix" in problem else ""
    return f": {problem['detail']}{fix}"
