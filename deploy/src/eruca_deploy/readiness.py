"""Check what the services of a starting cluster still lack, from their own answers.

Each function returns the unmet condition as a phrase that follows a service's name, or None. A
service that gives no proper answer is not up yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, cast

from eruca.contract.broker_groups import BrokerGroupView
from eruca.contract.errors import ErucaError
from eruca.contract.fields import MASTER_ID
from eruca.services.http import HttpTransport, problem_error

ANSWER_SECONDS: Final = 2.0  # for one request


class NoAnswerError(Exception):
    """A service gave no proper answer; the text says what happened instead."""


async def lacks_readiness(transport: HttpTransport, url: str) -> str | None:
    """Return why the service at *url* is not ready."""
    try:
        await _answer(transport, url, "/readyz")
    except NoAnswerError as error:
        return str(error)
    return None


async def lacks_brokers(
    transport: HttpTransport, namesrv_url: str, brokers: set[str]
) -> str | None:
    """Return which of *brokers* a name server does not know, or knows without a master.

    With none, the name server is not asked: one that has just started, and waits for brokers that
    are away, lists nothing yet.
    """
    if not brokers:
        return None
    try:
        answer = await _answer(transport, namesrv_url, "/v1/brokers")
    except NoAnswerError as error:
        return str(error)
    masters = {
        group["broker_name"]
        for group in answer["brokers"]
        if any(broker["broker_id"] == MASTER_ID for broker in group["brokers"])
    }
    unknown = brokers - masters
    return f"does not know {', '.join(sorted(unknown))}" if unknown else None


async def lacks_work(
    transport: HttpTransport,
    url: str,
    *,
    brokers: set[str],
) -> str | None:
    """Return which logs of *brokers* no instance of the service at *url* follows."""
    try:
        status = await _answer(transport, url, "/v1/status")
        followed = {
            log["broker_name"] for log in status["followed"] if log["followed_by"] is not None
        }
        if unfollowed := brokers - followed:
            return f"says that no instance follows {', '.join(sorted(unfollowed))}"
    except NoAnswerError as error:
        return str(error)
    return None


async def lacks_announcement(
    transport: HttpTransport, url: str, *, namespace: str, namesrv_urls: Sequence[str]
) -> str | None:
    """Return why clients cannot find the service at *url*.

    Args:
        transport: Sends the requests.
        url: The service's URL.
        namespace: Namespace of the key-value table in which the service is announced.
        namesrv_urls: Name servers that must all know it.
    """
    try:
        for namesrv_url in namesrv_urls:
            table = await _answer(transport, namesrv_url, f"/v1/kv/{namespace}")
            if url not in table["entries"].values():
                return f"is not known to {namesrv_url}"
    except NoAnswerError as error:
        return str(error)
    return None


async def broker_group(
    transport: HttpTransport, controller_url: str, broker_name: str
) -> BrokerGroupView:
    """Return a broker's group.

    Raises:
        NoAnswerError: The controller does not answer, or does not know the group.
    """
    answer = await _answer(transport, controller_url, f"/v1/broker-groups/{broker_name}")
    return BrokerGroupView.model_validate(answer)


async def _answer(transport: HttpTransport, url: str, target: str) -> dict[str, Any]:
    try:
        answer = await transport.request("GET", url, target, timeout=ANSWER_SECONDS)
    except ErucaError as error:
        raise NoAnswerError(f"had no answer: {error}") from error
    if answer.status != HTTPStatus.OK:
        refusal = problem_error(answer, "it answered")
        raise NoAnswerError(f"had {answer.status} from {url}{target}: {refusal}")
    return cast(dict[str, Any], json.loads(answer.body))
