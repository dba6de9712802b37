"""The interface of traces, by which the parts of a service make spans.

Work that many requests share, such as one write for all messages of a tick, is no child of any of
them. It is a span of its own with **links** to the requests. It is made only for sampled requests.
:mod:`.exporting_traces` decides whether there are spans at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol, TypeAlias

Traces: TypeAlias = Literal["", "otlp"]

LINKS_MAX: Final = 64  # of one span; OpenTelemetry's own limit is 128


class Linked(Protocol):
    """A sampled span that others may link to."""


class Tracing(Protocol):
    """Makes the spans of a service's work."""

    def current(self) -> Linked | None:
        """Return the span of the request for which the caller works; None: no sampled one."""
        ...

    def worked(
        self,
        name: str,
        started_ns: int,
        links: Iterable[Linked],
        attributes: Mapping[str, int],
        error: BaseException | None = None,
    ) -> Linked | None:
        """Record work that has just ended, or failed with *error*; None: there is no span of it.

        It never raises: the work is done.

        Args:
            name: Of the span.
            started_ns: When it began, in ns since the epoch.
            links: The spans for which it was done; the first ``LINKS_MAX`` count.
            attributes: Of the span.
            error: Why it failed.
        """
        ...
