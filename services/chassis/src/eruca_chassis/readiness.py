"""Readiness: a service accepts requests not yet, now, or no more.

Liveness (``/healthz``) means that the process answers; readiness (``/readyz``) that it can work.
While the service is not ready, every resource under ``/v1`` answers 503 with the reason, so that a
client tries another instance instead of getting half an answer.

A service may be unable to do its main work and still have some to do: after a disk failure it
stores nothing, but serves what it has. Its *incapacities* turn ``/readyz`` to 503 and nothing else;
each request fails or succeeds by itself.

A service with roles is ready in each of them, but a *door* refuses some operations (:mod:`.door`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eruca.contract.errors import ErucaError, NotReadyError
from eruca_chassis.door import Door

GATED_PREFIX: Final = "/v1"  # of paths that are refused until the service is ready
RETRY_SECONDS: Final = 1.0  # for Retry-After


class Readiness:
    """The switch, set by the service itself; a new one is off.

    Attributes:
        incapacities: Called only by ``/readyz``: each returns why the service cannot do its main
            work, or None.
        is_open: True if every request is accepted, so that none needs :meth:`refusal`.
    """

    def __init__(self) -> None:
        self.incapacities: list[Callable[[], ErucaError | None]] = []
        self.is_open = False
        self._reason: str | None = _STARTING
        self._fix: str | None = None
        self._door: Door | None = None

    @property
    def reason(self) -> str | None:
        """The reason why requests are refused; None: they are accepted."""
        return self._reason

    @property
    def door(self) -> Door | None:
        """The door that operations pass; None: there is none."""
        return self._door

    @door.setter
    def door(self, door: Door | None) -> None:
        self._door = door
        self._set(self._reason, self._fix)

    def ready(self) -> None:
        """Accept requests from now on, unless the service is already stopping."""
        if not self.is_stopping:
            self._set(None)

    def not_ready(self, reason: str, *, fix: str | None = None) -> None:
        """Refuse requests; *reason* is a sentence without a full stop, *fix* an instruction."""
        if not self.is_stopping:
            self._set(reason, fix)

    def stop(self) -> None:
        """Refuse requests for ever, and let go of the parts that are asked for incapacities."""
        self._set(_STOPPING)
        self.incapacities.clear()  # FastAPI's caches keep this object, and must not keep a store

    @property
    def is_ready(self) -> bool:
        """True if requests are accepted."""
        return self._reason is None

    @property
    def is_starting(self) -> bool:
        """True while the service is still starting."""
        return self._reason is _STARTING

    @property
    def is_stopping(self) -> bool:
        """True once the service has begun to stop."""
        return self._reason is _STOPPING

    def incapacity(self) -> NotReadyError | None:
        """Return why the service, although it accepts requests, cannot work; None if it can."""
        for incapacity in self.incapacities:
            if (error := incapacity()) is not None:
                return NotReadyError(
                    error.detail, fix=error.fix, retry_after_seconds=error.retry_after_seconds
                )
        return None

    def refusal(self, operation: str) -> ErucaError | None:
        """Return why a request is refused; None if it is accepted.

        Args:
            operation: Its id in the OpenAPI document; empty: there is no such operation.
        """
        if self._door is not None and operation and not self.is_starting:
            refusal = self._door.refusal(operation)
            if refusal is not None:
                return refusal
        return None if self._reason is None else self.error()

    def error(self) -> NotReadyError:
        """Return the error for refused requests."""
        assert self._reason is not None
        return NotReadyError(
            self._reason,
            fix=self._fix,
            retry_after_seconds=RETRY_SECONDS,
        )

    def _set(self, reason: str | None, fix: str | None = None) -> None:
        self._reason, self._fix = reason, fix
        self.is_open = reason is None and self._door is None


_STARTING: Final = "the service is starting"
_STOPPING: Final = "the service is stopping"
