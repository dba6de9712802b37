"""Requests to etcd through the JSON gateway of its own API, which needs no client library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from eruca.contract.errors import ArbiterUnavailableError, ErucaError
from eruca.services.http import JSON_HEADER, HttpTransport

REQUEST_SECONDS: Final = 3.0  # for one request to one member
RETRY_AFTER_SECONDS: Final = 2.0
_FIX: Final = "start etcd, or set ERUCA_CONTROLLER_ETCD_URLS to the URLs of its members"
_SHOWN_SIZE: Final = 200  # characters of etcd's answer that are repeated


class EtcdClient:
    """Asks the members of one cluster.

    Args:
        transport: Sends the requests.
        urls: The members' URLs.
    """

    def __init__(self, transport: HttpTransport, urls: Sequence[str]) -> None:
        assert urls
        self._transport = transport
        self._urls = list(urls)  # the one that answered last comes first

    async def ask(self, target: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the first member that gives one.

        After a failure another member is asked, although the first one may have done the work. So
        a change must be a comparison too, which fails the second time.

        Raises:
            ArbiterUnavailableError: No member answers.
        """
        body = json.dumps(request).encode()
        faults = []
        for url in list(self._urls):
            try:
                answer = await self._transport.request(
                    "POST", url, target, headers=[JSON_HEADER], body=[body], timeout=REQUEST_SECONDS
                )
            except ErucaError as error:
                faults.append(f"{url}: {error.detail}")
            else:
                if answer.status == HTTPStatus.OK:
                    self._prefer(url)
                    answered: dict[str, Any] = json.loads(answer.body)
                    return answered
                said = bytes(answer.body).decode(errors="replace")[:_SHOWN_SIZE]
                faults.append(f"{url}: HTTP status {answer.status}: {said}")
        raise ArbiterUnavailableError(
            f"etcd does not answer: {'; '.join(faults)}",
            fix=_FIX,
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )

    def _prefer(self, url: str) -> None:
        if self._urls[0] != url:
            self._urls.remove(url)
            self._urls.insert(0, url)
