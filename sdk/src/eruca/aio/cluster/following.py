"""Requests that follow a broker's master: the one place that handles redirects.

A request for a broker's master may reach a replica that is not the master any more. It answers 307
``not-master``, with the master's URLs and epoch, and has done nothing. The request is repeated at
the master within its timeout, and later requests go there at once
(:mod:`eruca.core.routing.master_book`). Meanwhile the route is refreshed in the background.

If the replicas have no master for the moment, or name one another, a transport that *waits* repeats
the request until its timeout. If a replica refuses the connection, it asks the others in turn:
nothing of the request has been sent, and one of them is going to be master. It serves callers
without a retry policy of their own: administration, commits, acknowledgements. Senders and
consumers have one, and get the error at once.

No body is sent twice if that can be avoided: a broker answers a large one before it has read it,
and then :mod:`eruca.aio.http.http1_connection` does not send the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

from eruca.aio.http.transport import (
    ConnectTimeoutError,
    HttpResponse,
    HttpTransport,
    NotConnectedError,
    PipeLostError,
    leads_to,
    pipe_of,
    problem_error,
)
from eruca.contract.errors import ErucaError, NotMasterError, NotMasterForSureError
from eruca.contract.records import Buffer
from eruca.core.pauses import doubled
from eruca.core.retry_policy import MASTER_PAUSE_SECONDS_MAX

if TYPE_CHECKING:
    from eruca.core.routing.master_book import MasterBook

HOPS_MAX: Final = 3  # redirects that one request follows; replicas agree after the first one
PAUSE_SECONDS: Final = 0.05  # while there is no master; doubles
_STATUSES: Final = frozenset({NotMasterError.status, NotMasterForSureError.status})


class FollowingTransport:
    """The transport interface over another transport, for requests to masters.

    Args:
        transport: Sends the requests.
        book: The redirects that the client knows.
        on_redirect: Called with the URL that does not lead to the master any more.
        waits: Whether to wait for a master until a request's timeout.
        is_held: Whether servers hold the requests: then each hop has the full timeout.
    """

    def __init__(
        self,
        transport: HttpTransport,
        book: MasterBook,
        *,
        on_redirect: Callable[[str], None],
        waits: bool = False,
        is_held: bool = False,
    ) -> None:
        self.transport = transport
        self._book = book
        self._on_redirect = on_redirect
        self._waits = waits
        self._is_held = is_held

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        """Return the answer of the master, within *timeout* seconds."""
        place = self._book.place(url)
        deadline = monotonic() + timeout
        outcome: HttpResponse | ErucaError
        try:
            outcome = await self.transport.request(
                method, place, target, headers=headers, body=body, timeout=timeout
            )
        except (NotConnectedError, ConnectTimeoutError) as error:
            if place != url or self._waits:
                self._lose(url, error)
            if not self._waits:
                raise
            outcome = error
        else:
            if outcome.status not in _STATUSES:
                return outcome
        course = _Course(url, place, outcome, deadline)
        while self._goes_on(course):
            if course.pause:
                await asyncio.sleep(course.pause)
            remaining = course.deadline - monotonic()
            if remaining <= 0:
                break
            try:
                course.outcome = await self.transport.request(
                    method,
                    course.place,
                    target,
                    headers=headers,
                    body=body,
                    timeout=timeout if self._is_held else remaining,
                )
            except (NotConnectedError, ConnectTimeoutError) as error:
                self._lose(url, error)
                if not self._waits:
                    raise
                course.outcome = error
        if isinstance(course.outcome, ErucaError):
            raise course.outcome
        return course.outcome

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        await self.transport.close()

    def pipe(self) -> HttpTransport | None:
        """Return a transport over one connection to the masters that this one knows."""
        pipe = pipe_of(self.transport)
        if pipe is None:
            return None
        return FollowingTransport(pipe, self._book, on_redirect=self._on_redirect)

    def leads_to(self, url: str) -> bool:
        """Tell whether the one connection, of a :meth:`pipe`, leads to the master of *url*."""
        return leads_to(self.transport, self._book.place(url))

    def _goes_on(self, course: _Course) -> bool:
        """Tell whether to send the request once more; *course* says where, and after what pause."""
        error = _masterless(course.outcome)
        if error is None:
            return False
        course.pause = 0.0
        replicas = self._book.replicas(course.url)
        is_unconnected = error is course.outcome
        if is_unconnected and len(replicas) < 2:
            return False  # nobody else can become master
        if isinstance(error, NotMasterError):
            place = self._book.redirected(course.place, error)
            self._on_redirect(course.url)
            if place is not None and place not in course.visited and course.hops < HOPS_MAX:
                if course.url != course.place:  # the next request takes the short way
                    self._book.redirected(course.url, error)
                course.hops += 1
                course.visited.add(place)
                course.place = place
                if self._is_held:
                    course.deadline = float("inf")
                return True
        if not self._waits:
            return False
        course.pause = doubled(PAUSE_SECONDS, course.rounds, MASTER_PAUSE_SECONDS_MAX)
        course.rounds += 1
        if is_unconnected:
            course.place = replicas[course.rounds % len(replicas)]
        else:
            course.place = self._book.successor(course.url)
        course.visited = {course.place}
        course.hops = 0
        return True

    def _lose(self, url: str, error: ErucaError) -> None:
        """Forget the master that was named instead of *url*: a replica is unreachable."""
        if isinstance(error, PipeLostError):
            return  # the connection led elsewhere: the replica has not been tried
        self._book.forget(url)
        self._on_redirect(url)


class _Course:
    """The progress of one request that was redirected."""

    __slots__ = ("deadline", "hops", "outcome", "pause", "place", "rounds", "url", "visited")

    def __init__(
        self, url: str, place: str, outcome: HttpResponse | ErucaError, deadline: float
    ) -> None:
        self.url = url  # the caller's
        self.place = place  # the last one asked
        self.outcome = outcome  # of the last request; an error: no connection was made
        self.deadline = deadline
        self.hops = 0  # since the last pause
        self.rounds = 0
        self.pause = 0.0
        self.visited = {place}


def _masterless(outcome: HttpResponse | ErucaError) -> ErucaError | None:
    """Return the error of a request that has not reached a master; None for any other outcome."""
    if isinstance(outcome, ErucaError):
        return outcome
    if outcome.status not in _STATUSES:
        return None
    error = problem_error(outcome, "")
    return error if isinstance(error, NotMasterError | NotMasterForSureError) else None
