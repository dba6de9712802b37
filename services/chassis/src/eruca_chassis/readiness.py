"""Readiness: a service accepts requests not yet, now, or no more.

Liveness (``/healthz``) means that the process answers; readiness (``/readyz``) that it can work.
While the service is not ready, every resource under ``/v1`` answers 503 with the reason, so that a
client tries another instance instead of getting half an answer.

A service may be unable to do its main work and still have some to do: after a disk failure it
stores nothing, but serves what it has. Its *incapacities* turn ``/readyz`` to 503 and nothing else;
each request fails or succeeds by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eruca.contract.errors import ErucaError, NotReadyError

GATED_PREFIX: Final = "/v1"  # of paths that are refused until the service is ready
RETRY_SECONDS: Final = 1.0  # for Retry-After


class Readiness:
    """The switch, set by the service itself; a new one is off.

    Attributes:
        incapacities: Called only by ``/readyz``: each returns why the service cannot do its main
            work, or None.
    """

    def __init__(self) -> None:
        self.incapacities: list[Callable[[], ErucaError | None]] = []
        self.reason: str | None = _STARTING
        self._fix: str | None = None

    def ready(self) -> None:
        """Accept requests from now on, unless the service is already stopping."""
        if not self.is_stopping:
            self.reason = None

    def not_ready(self, reason: str, *, fix: str | None = None) -> None:
        """Refuse requests; *reason* is a sentence without a full stop, *fix* an instruction."""
        if not self.is_stopping:
            self.reason, self._fix = reason, fix

    def stop(self) -> None:
        """Refuse requests for ever, and let go of the parts that are asked for incapacities."""
        self.reason, self._fix = _STOPPING, None
        self.incapacities.clear()  # FastAPI's caches keep this object, and must not keep a store

    @property
    def is_ready(self) -> bool:
        """True if requests are accepted."""
        return self.reason is None

    @property
    def is_starting(self) -> bool:
        """True while the service is still starting."""
        return self.reason is _STARTING

    @property
    def is_stopping(self) -> bool:
        """True once the service has begun to stop."""
        return self.reason is _STOPPING

    def incapacity(self) -> NotReadyError | None:
        """Return why the service, although it accepts requests, cannot work; None if it can."""
        for incapacity in self.incapacities:
            if (error := incapacity()) is not None:
                return NotReadyError(
                    error.detail, fix=error.fix, retry_after_seconds=error.retry_after_seconds
                )
        return None

    def error(self) -> NotReadyError:
        """Return the error for refused requests."""
        assert self.reason is not None
        return NotReadyError(
            self.reason,
            fix=self._fix,
            retry_after_seconds=RETRY_SECONDS,
        )


_STARTING: Final = "the service is starting"
_STOPPING: Final = "the service is stopping"
