"""Requests to etcd through the JSON gateway of its own API, which needs no client library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from eruca.contract.errors import ArbiterUnavailableError, ErucaError
from eruca.services.http import JSON_HEADER, HttpResponse, HttpTransport

REQUEST_SECONDS: Final = 3.0  # for one request to one member
RETRY_AFTER_SECONDS: Final = 2.0
_FIX: Final = (
    "start etcd, or set ERUCA_CONTROLLER_ETCD_URLS to the URLs of its members; if it authenticates "
    "clients, ERUCA_CONTROLLER_ETCD_USER and ERUCA_CONTROLLER_ETCD_PASSWORD"
)
_SHOWN_SIZE: Final = 200  # characters of etcd's answer that are repeated


class EtcdClient:
    """Asks the members of one cluster.

    Args:
        transport: Sends the requests.
        urls: The members' URLs.
        account: User and password, if etcd authenticates its clients; an empty user: it does not.
    """

    def __init__(
        self, transport: HttpTransport, urls: Sequence[str], *, account: tuple[str, str] = ("", "")
    ) -> None:
        assert urls
        self._transport = transport
        self._urls = list(urls)  # the one that answered last comes first
        self._account = account
        self._tokens: dict[str, str] = {}  # by URL; a member forgets them when it restarts

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
                answer = await self._ask_member(url, target, body)
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

    async def _ask_member(self, url: str, target: str, body: bytes) -> HttpResponse:
        """Return the answer of one member; sign in first, if it is needed."""
        user, password = self._account
        if not user:
            return await self._post(url, target, body)
        if (token := self._tokens.get(url)) is not None:
            answer = await self._post(url, target, body, token)
            if not _is_unknown_token(answer):
                return answer
        account = json.dumps({"name": user, "password": password}).encode()
        signed_in = await self._post(url, "/v3/auth/authenticate", account)
        if signed_in.status != HTTPStatus.OK:
            return signed_in
        token = self._tokens[url] = json.loads(signed_in.body)["token"]
        return await self._post(url, target, body, token)

    async def _post(
        self, url: str, target: str, body: bytes, token: str | None = None
    ) -> HttpResponse:
        headers = [JSON_HEADER] if token is None else [JSON_HEADER, ("authorization", token)]
        return await self._transport.request(
            "POST", url, target, headers=headers, body=[body], timeout=REQUEST_SECONDS
        )

    def _prefer(self, url: str) -> None:
        if self._urls[0] != url:
            self._urls.remove(url)
            self._urls.insert(0, url)


def _is_unknown_token(answer: HttpResponse) -> bool:
    """Tell whether the member does not accept the token any more, so that it did nothing."""
    if answer.status == HTTPStatus.UNAUTHORIZED:  # it has expired, or the member has restarted
        return True
    # Users or roles have changed since.
    return answer.status == HTTPStatus.BAD_REQUEST and b"auth store is old" in bytes(answer.body)
