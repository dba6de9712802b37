"""Raised by the SDK itself, never sent: the client could not do it."""

from __future__ import annotations

from collections.abc import Sequence

from eruca.contract.errors.base import ErucaError


class ClientError(ErucaError):
    """Raised by the SDK itself; never crosses the wire."""

    code = "client"
    title = "The client could not do this"


class NameServersUnreachableError(ClientError):
    """No name server answered."""

    code = "name-servers-unreachable"
    title = "No name server answered"
    retryable = True


class NoRouteError(ClientError):
    """No live broker has the topic, or none that may be used this way."""

    code = "no-route"
    title = "No broker serves the topic"
    retryable = True


class TransportError(ClientError):
    """The connection failed or the answer could not be read; it is unknown what the server did."""

    code = "transport"
    title = "The connection failed"
    retryable = True


class TimeoutExpiredError(ClientError):
    """The deadline passed before an answer came; it is unknown what the server did."""

    code = "timeout"
    title = "The deadline passed"
    retryable = True


class ClosedError(ClientError):
    """The client, producer or consumer has been closed."""

    code = "closed"
    title = "The client is closed"


class SendFailedError(ClientError):
    """Every attempt to send failed; ``attempts`` says where and how, oldest first."""

    code = "send-failed"
    title = "The message could not be sent"
    retryable = True

    def __init__(self, detail: str, *, attempts: Sequence[tuple[str, ErucaError]] = ()) -> None:
        super().__init__(detail)
        self.attempts = list(attempts)


class PartialSendError(SendFailedError):
    """Of several batches some were stored and some were not; each batch is whole or absent.

    ``outcomes`` has one entry for each message, in the order they were given: the ``SendResult``
    of a stored one, the error of one that was not.
    """

    code = "partly-sent"
    title = "Some of the messages could not be sent"

    def __init__(
        self,
        detail: str,
        *,
        outcomes: Sequence[object],
        attempts: Sequence[tuple[str, ErucaError]] = (),
    ) -> None:
        super().__init__(detail, attempts=attempts)
        self.outcomes = list(outcomes)

    @property
    def failed_indexes(self) -> list[int]:
        """Which of the messages were not sent."""
        return [i for i, outcome in enumerate(self.outcomes) if isinstance(outcome, ErucaError)]


class DamagedMessageError(ClientError):
    """A message is not what its producer sent, or its body cannot be unpacked."""

    code = "damaged-message"
    title = "The message is damaged"


class OffsetOutOfRangeError(ClientError):
    """A consumer's position is before the first or after the last message of its queue."""

    code = "offset-out-of-range"
    title = "The queue holds nothing at this offset"

    def __init__(
        self, detail: str, *, fix: str | None = None, min_offset: int, max_offset: int
    ) -> None:
        super().__init__(detail, fix=fix)
        self.min_offset = min_offset
        self.max_offset = max_offset


class NoCommittedOffsetError(ClientError):
    """A consumer was told to start where its group stands, and the group stands nowhere yet."""

    code = "no-committed-offset"
    title = "The group has no committed offset in this queue"
