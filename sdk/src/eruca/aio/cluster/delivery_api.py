"""A group's deliveries at a broker: one function for each request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from eruca.aio.cluster.requests import ask, send_model
from eruca.aio.http.transport import UNREADABLE, HttpTransport, path_segment
from eruca.contract.deliveries import (
    DeliveryAcks,
    DeliveryAnswer,
    DeliveryExtension,
    DeliveryNacks,
    DeliveryRequest,
    ExtendedDeliveries,
    NackResult,
    NackResults,
)
from eruca.contract.errors import TransportError

_ANSWERS: Final = msgspec.json.Decoder(DeliveryAnswer)


class DeliveryApi:
    """Requests of one group to brokers, each given by its URL.

    Args:
        receiving: Carries the requests for messages, which brokers may hold.
        finishing: Carries the others; it waits for a broker's master if there is none now.
        group: The group.
        timeout: In seconds, beyond the time for which a request is held.
    """

    def __init__(
        self, receiving: HttpTransport, finishing: HttpTransport, group: str, *, timeout: float
    ) -> None:
        self._receiving = receiving
        self._finishing = finishing
        self._path = f"/v1/groups/{path_segment(group)}/deliveries"
        self._timeout = timeout

    async def receive(self, url: str, request: DeliveryRequest) -> DeliveryAnswer:
        """Receive messages."""
        timeout = self._timeout + request.wait_seconds
        answer = await send_model(
            self._receiving, "POST", url, self._path, request, timeout=timeout
        )
        try:
            return _ANSWERS.decode(answer.body)
        except UNREADABLE as error:
            raise TransportError(f"{url}{self._path}: the answer is invalid: {error}") from error

    async def ack(self, url: str, handles: Sequence[str]) -> None:
        """Acknowledge messages: all of them or none."""
        body = DeliveryAcks(handles=list(handles))
        await send_model(
            self._finishing, "POST", url, f"{self._path}:ack", body, timeout=self._timeout
        )

    async def nack(self, url: str, nacks: DeliveryNacks) -> list[NackResult]:
        """Reject messages: all of them or none."""
        target = f"{self._path}:nack"
        answer = await ask(
            NackResults, self._finishing, "POST", url, target, body=nacks, timeout=self._timeout
        )
        return answer.results

    async def extend(self, url: str, extension: DeliveryExtension) -> ExtendedDeliveries:
        """Extend leases: all of them or none."""
        target = f"{self._path}:extend"
        return await ask(
            ExtendedDeliveries,
            self._finishing,
            "POST",
            url,
            target,
            body=extension,
            timeout=self._timeout,
        )
