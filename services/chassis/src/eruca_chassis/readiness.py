"""Whether a service takes requests: not yet, now, or no more.

Liveness (``/healthz``) says that the process answers; readiness (``/readyz``) that it can do its
work. While the switch is off, every resource under ``/v1`` answers 503 with the reason, so that a
client tries elsewhere instead of getting half an answer.

A service may be unable to do its work and still have some to do: one whose disk has failed
takes nothing in, and hands out what it has. Its *incapacities* turn ``/readyz`` to 503 and nothing
else; each request finds out by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eruca.contract.errors import ErucaError, NotReadyError

GATED_PREFIX: Final = "/v1"  # of the paths that wait until the service is ready
RETRY_SECONDS: Final = 1.0  # what clients are told to wait


class Readiness:
    """The one switch, thrown by the service itself; a new one is off.

    Attributes:
        incapacities: Asked by ``/readyz`` alone: each returns why the service cannot do its work,
            or None.
    """

    def __init__(self) -> None:
        self.incapacities: list[Callable[[], ErucaError | None]] = []
        self.reason: str | None = _STARTING
        self._fix: str | None = None

    def ready(self) -> None:
        """Take requests from now on, unless the service is stopping already."""
        if not self.is_stopping:
            self.reason = None

    def not_ready(self, reason: str, *, fix: str | None = None) -> None:
        """Refuse requests; *reason* is a sentence without a full stop, *fix* what would help."""
        if not self.is_stopping:
            self.reason, self._fix = reason, fix

    def stop(self) -> None:
        """Refuse requests for good."""
        self.reason, self._fix = _STOPPING, None

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return self.reason is None

    @property
    def is_starting(self) -> bool:
        """Whether the service has not yet told anything about itself."""
        return self.reason is _STARTING

    @property
    def is_stopping(self) -> bool:
        """Whether the service has begun to stop."""
        return self.reason is _STOPPING

    def incapacity(self) -> NotReadyError | None:
        """Return why the service, although it takes requests, cannot do its work; None: it can."""
        for incapacity in self.incapacities:
            if (error := incapacity()) is not None:
                return NotReadyError(
                    error.detail, fix=error.fix, retry_after_seconds=error.retry_after_seconds
                )
        return None

    def error(self) -> NotReadyError:
        """Return what a refused client is told."""
        assert self.reason is not None
        return NotReadyError(
            self.reason,
            fix=self._fix,
            retry_after_seconds=RETRY_SECONDS,
        )


_STARTING: Final = "the service is starting"
_STOPPING: Final = "the service is stopping"
