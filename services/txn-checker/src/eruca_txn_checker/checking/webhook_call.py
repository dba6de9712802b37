"""One call of a webhook: only at allowed addresses, within limits of time and size.

The name is resolved once, every address it resolves to is checked, and the connection goes to a
checked address. So a name that resolves differently a moment later leads nowhere else. Redirects
and proxies are not used, and no more of an answer is read than a valid one can have.

Source: Standard Webhooks 1.0.0; OWASP, Server-Side Request Forgery Prevention.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final

import httpx

from eruca.contract.transactions import CheckAnswer
from eruca.services.http import ANONYMOUS, httpx_client
from eruca_txn_checker.core.reach import Reach, is_within

ANSWER_SIZE_MAX: Final = 64 * 1024  # bytes; a valid answer has about 100
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})  # a retry may succeed


class WebhookFaultError(Exception):
    """The call failed or had no valid answer; ``is_final``: a retry would not help."""

    def __init__(self, text: str, *, is_final: bool) -> None:
        super().__init__(text)
        self.is_final = is_final


class WebhookCaller:
    """Calls webhooks, each over a connection of its own.

    A pool would tell connections apart by address, so two names that share an address could get
    each other's connection.

    Args:
        reach: The addresses that may be called.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        # Webhooks are not ours: our credentials must not leave with a request to them.
        self._client = httpx_client(ANONYMOUS, limits=httpx.Limits(max_keepalive_connections=0))

    async def call(
        self, url: str, headers: dict[str, str], body: bytes, *, timeout: float
    ) -> CheckAnswer:
        """Call the webhook and return its answer.

        Raises:
            WebhookFaultError: The call failed, or the answer is invalid.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._call(httpx.URL(url), headers, body, timeout)
        except (TimeoutError, httpx.TimeoutException):
            raise WebhookFaultError(f"no answer within {timeout:g} s", is_final=False) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = str(error) or type(error).__name__
            raise WebhookFaultError(text, is_final=False) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _call(
        self, url: httpx.URL, headers: dict[str, str], body: bytes, timeout: float
    ) -> CheckAnswer:
        address = await self._address(url)
        request = self._client.build_request(
            "POST",
            url.copy_with(host=address),
            headers={
                **headers,
                "host": url.netloc.decode("ascii"),
                "content-type": "application/json",
                "accept": "application/json",
                "accept-encoding": "identity",
                "user-agent": "eruca-txn-checker",
            },
            content=body,
            timeout=timeout,
            # The certificate must be the name's, not the address's.
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        answer = await self._client.send(request, stream=True)
        try:
            if not 200 <= answer.status_code < 300:
                raise WebhookFaultError(
                    f"it answered {answer.status_code}",
                    is_final=answer.status_code not in _AGAIN,
                )
            return _answer_of(await _read(answer))
        finally:
            await answer.aclose()

    async def _address(self, url: httpx.URL) -> str:
        """Resolve the host; return an address that may be called."""
        host, port = url.host, url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            raise WebhookFaultError(
                f"{host} cannot be resolved: {error}", is_final=False
            ) from error
        addresses = [str(entry[4][0]) for entry in found]
        refused = [address for address in addresses if not is_within(address, self._reach)]
        if refused or not addresses:
            # One forbidden address makes the name suspect: a retry might connect to it.
            raise WebhookFaultError(refusal_of(host, self._reach), is_final=True)
        return addresses[0]


def refusal_of(host: str, reach: Reach) -> str:
    """Return the text that says why *host* is not called."""
    return (
        f"{host} resolves to an address outside the allowed reach {reach.value!r} "
        "(ERUCA_TXN_CHECKER_WEBHOOK_REACH)"
    )


def literal_address(host: str) -> str | None:
    """Return *host* if it is an IP address, without brackets; None if it is a name."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return None


async def _read(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for piece in answer.aiter_raw():
        content += piece
        if len(content) > ANSWER_SIZE_MAX:
            raise WebhookFaultError(
                f"its answer is larger than {ANSWER_SIZE_MAX} bytes", is_final=True
            )
    return bytes(content)


def _answer_of(content: bytes) -> CheckAnswer:
    try:
        return CheckAnswer.model_validate_json(content)
    except ValueError:
        shown = content[:80].decode(errors="replace")
        raise WebhookFaultError(
            f'expected the answer {{"answer": "commit" | "rollback" | "unknown"}}, found {shown!r}',
            is_final=True,
        ) from None
