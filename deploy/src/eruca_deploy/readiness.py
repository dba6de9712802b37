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
from eruca.contract.names import CONTROLLERS_NAMESPACE
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
    namespace: str,
    namesrv_urls: Sequence[str],
) -> str | None:
    """Return why a service cannot be found, or which logs no instance follows.

    Args:
        transport: Sends the requests.
        url: The service's URL.
        brokers: The brokers whose logs must be followed.
        namespace: Namespace of the key-value table in which the service is announced.
        namesrv_urls: Name servers that must all know it.
    """
    try:
        status = await _answer(transport, url, "/v1/status")
        followed = {
            log["broker_name"] for log in status["followed"] if log["followed_by"] is not None
        }
        if unfollowed := brokers - followed:
            return f"says that no instance follows {', '.join(sorted(unfollowed))}"
        for namesrv_url in namesrv_urls:
            table = await _answer(transport, namesrv_url, f"/v1/kv/{namespace}")
            if status["name"] not in table["entries"]:
                return f"is not known to {namesrv_url}"
    except NoAnswerError as error:
        return str(error)
    return None


async def lacks_controllers(transport: HttpTransport, namesrv_url: str) -> str | None:
    """Return that a name server knows no controller; one is enough for clients."""
    try:
        table = await _answer(transport, namesrv_url, f"/v1/kv/{CONTROLLERS_NAMESPACE}")
    except NoAnswerError as error:
        return str(error)
    return None if table["entries"] else "knows no controller"


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
