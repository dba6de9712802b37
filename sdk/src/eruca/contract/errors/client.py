"""Errors that the SDK raises itself; they are never sent."""

from __future__ import annotations

from collections.abc import Sequence

from eruca.contract.errors.base import ErucaError


class ClientError(ErucaError):
    """Base of the errors that the SDK raises itself; they never cross the wire."""

    code = "client"
    title = "The client failed"


class NameServersUnreachableError(ClientError):
    """No name server answered."""

    code = "name-servers-unreachable"
    title = "No name server answered"
    retryable = True


class NoRouteError(ClientError):
    """No live broker has the topic, or its permission rules out this use."""

    code = "no-route"
    title = "No broker serves the topic"
    retryable = True


class TransportError(ClientError):
    """The connection failed or the answer is unreadable; the server may have done the work."""

    code = "transport"
    title = "The connection failed"
    retryable = True


class TimeoutExpiredError(ClientError):
    """The request timed out before an answer came; the server may have done the work."""

    code = "timeout"
    title = "The deadline passed"
    retryable = True


class NoCredentialsError(ClientError):
    """No valid credentials are available now; the request was not sent."""

    code = "no-credentials"
    title = "There are no valid credentials"
    retryable = True


class ClosedError(ClientError):
    """The client, producer or consumer has been closed."""

    code = "closed"
    title = "The client is closed"


class SendFailedError(ClientError):
    """Every attempt to send failed; ``attempts`` lists broker and error, oldest first."""

    code = "send-failed"
    title = "The message could not be sent"
    retryable = True

    def __init__(self, detail: str, *, attempts: Sequence[tuple[str, ErucaError]] = ()) -> None:
        super().__init__(detail)
        self.attempts = list(attempts)


class PartialSendError(SendFailedError):
    """Some batches were stored and some were not; each batch is stored whole or not at all.

    ``outcomes`` has one entry for each message, in the order of the call: the ``SendResult`` of a
    stored message, the error of any other.
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
        """Indexes of the messages that were not sent."""
        return [i for i, outcome in enumerate(self.outcomes) if isinstance(outcome, ErucaError)]


class DamagedMessageError(ClientError):
    """A message differs from the one its producer sent, or its body cannot be decompressed."""

    code = "damaged-message"
    title = "The message is damaged"


class OffsetOutOfRangeError(ClientError):
    """A consumer's position is outside the offsets that its queue holds."""

    code = "offset-out-of-range"
    title = "The queue holds nothing at this offset"

    def __init__(
        self, detail: str, *, fix: str | None = None, min_offset: int, max_offset: int
    ) -> None:
        super().__init__(detail, fix=fix)
        self.min_offset = min_offset
        self.max_offset = max_offset


class NoCommittedOffsetError(ClientError):
    """A consumer is to start at its group's committed offset, and there is none yet."""

    code = "no-committed-offset"
    title = "The group has no committed offset in this queue"
