"""The arbiter, as a replica sees it: the group's row, and changes of it by compare-and-set.

Any controller may be asked, since they share one arbiter. One that does not answer, or says that it
cannot work, is followed by the next. A change has one of three ends:

- The arbiter has accepted it.
- The arbiter has another version than the one from which the change was asked for.
- Nobody answered. Then the request may still be on its way. It is never assumed to have failed, or
  to have succeeded: it is repeated from the same version, until one of the two other ends is known.
  Only one request from a version can succeed, so a repetition does no harm.

If it is certain that no request was sent to anybody, the change may be given up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import structlog

from eruca.contract.broker_groups import (
    BrokerGroupPut,
    BrokerGroupView,
    GroupFlushMode,
    Replica,
    ReplicaName,
)
from eruca.contract.errors import (
    ErucaError,
    InternalError,
    NotFoundError,
    PreconditionFailedError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
)
from eruca.services.cluster import parsed
from eruca.services.http import (
    JSON_HEADER,
    ConnectTimeoutError,
    HttpResponse,
    HttpTransport,
    NotConnectedError,
    path_segment,
    problem_error,
    target_of,
)
from eruca_broker.core.replication.broker_group import BrokerGroup, Change, Member

ANSWER_SECONDS: Final = 2.0  # for an answer, beyond the time for which a read is held
_NOT_MODIFIED: Final = 304
_ELSEWHERE: Final = (TransportError, TimeoutExpiredError, UnavailableError, InternalError)

logger = structlog.get_logger(__name__)


class UnansweredError(Exception):
    """No controller has answered; the request may have been received.

    Attributes:
        was_sent: False if it is certain that nobody has received it.
    """

    def __init__(self, cause: ErucaError, *, was_sent: bool) -> None:
        super().__init__(f"no controller answers: {cause}")
        self.was_sent = was_sent


class StaleVersionError(Exception):
    """The row has another version than the one from which a change was asked for."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The row: what the rules are about, and what they are not."""

    group: BrokerGroup
    replicas: tuple[Replica, ...] = ()
    min_in_sync: int = 1
    flush_mode: GroupFlushMode = "async"

    def with_replica(self, replica: Replica) -> GroupRow:
        """Return the row with *replica* in place of the one with its id."""
        others = [known for known in self.replicas if known.replica_id != replica.replica_id]
        listed = sorted([*others, replica], key=lambda known: known.replica_id)
        return replace(self, replicas=tuple(listed))

    def urls_of(self, member: Member) -> dict[str, str]:
        """Return the URLs of a replica, by network; empty if the row does not have them."""
        for replica in self.replicas:
            if (replica.replica_id, replica.uid) == member:
                return dict(replica.urls)
        return {}


class KnownRow(NamedTuple):
    """The row, as the arbiter has answered it."""

    version: str
    row: GroupRow
    by: str  # the author of its last change
    number: int = 0  # of the arbiter's changes

    @property
    def group(self) -> BrokerGroup:
        """The part that the rules are about."""
        return self.row.group

    @property
    def change(self) -> Change:
        """Its place among all rows of the group."""
        return Change(self.group.epoch, self.number)


class Arbiter:
    """The row of one broker group, at any of several controllers.

    Args:
        urls: Of all controllers.
        broker_name: The group's.
        author: Names this process, and no other, as the author of its changes.
        transport: For its requests; the owner closes it.
    """

    def __init__(
        self, urls: Sequence[str], broker_name: str, *, author: str, transport: HttpTransport
    ) -> None:
        assert urls, "a standalone broker has no arbiter"
        self.author = author
        self.is_answering = False  # whether the last request was answered
        self._urls = list(urls)  # the one that answered last comes first
        self._target = f"/v1/broker-groups/{path_segment(broker_name)}"
        self._transport = transport

    async def read(
        self, *, known: KnownRow | None = None, wait_seconds: float = 0
    ) -> KnownRow | None:
        """Return the row; None if the arbiter does not know the group.

        Args:
            known: The row as it was: the answer comes once it has another version.
            wait_seconds: At the latest after this time, then with the same row.

        Raises:
            UnansweredError: No controller has answered.
            ErucaError: A controller refuses the request.
        """
        target, headers = self._target, []
        if known is not None:
            headers = [("if-none-match", f'"{known.version}"')]
            target = target_of(target, wait_seconds=wait_seconds)
        response = await self._ask("GET", target, headers, seconds=ANSWER_SECONDS + wait_seconds)
        if response is None:
            return None
        if known is not None and response.status == _NOT_MODIFIED:
            return known
        return self._row_in(response)

    async def swap(self, expected: str | None, row: GroupRow, *, reason: str) -> KnownRow:
        """Change the row by compare-and-set, and return it.

        Args:
            expected: The version from which the change is asked for; None: there is no row.
            row: The row to have.
            reason: For the history.

        Raises:
            StaleVersionError: The row has another version; read it.
            UnansweredError: No controller has answered. If it was sent, repeat it.
            ErucaError: A controller refuses the row.
        """
        condition = ("if-none-match", "*") if expected is None else ("if-match", f'"{expected}"')
        body = _put_of(row, by=self.author, reason=reason).model_dump_json().encode()
        try:
            response = await self._ask(
                "PUT", self._target, [condition, JSON_HEADER], body, seconds=ANSWER_SECONDS
            )
        except PreconditionFailedError as error:
            raise StaleVersionError(error.detail) from error
        assert response is not None, "a PUT finds no row missing"
        return self._row_in(response)

    def is_ours(self, row: KnownRow) -> bool:
        """Tell whether this process is the author of the row's last change."""
        return row.by == self.author

    async def _ask(
        self,
        method: str,
        target: str,
        headers: Collection[tuple[str, str]],
        body: bytes = b"",
        *,
        seconds: float,
    ) -> HttpResponse | None:
        """Return an answer; None if there is no such row."""
        was_sent, last = False, None
        for url in list(self._urls):
            try:
                response = await self._transport.request(
                    method,
                    url,
                    target,
                    headers=list(headers),
                    body=[body] if body else (),
                    timeout=seconds,
                )
                if response.status >= 300 and response.status != _NOT_MODIFIED:
                    raise problem_error(response, f"{method} {url}{target}")
            except NotFoundError:
                self._answered_by(url)
                if method == "GET":
                    return None
                raise
            except _ELSEWHERE as error:
                # A service that answers "not now" may have passed the request on before.
                was_sent |= not isinstance(error, NotConnectedError | ConnectTimeoutError)
                last = error
                continue
            except ErucaError:
                self._answered_by(url)
                raise
            self._answered_by(url)
            return response
        assert last is not None
        if self.is_answering:
            logger.warning("no controller answers", reason=str(last))
        self.is_answering = False
        raise UnansweredError(last, was_sent=was_sent) from last

    def _answered_by(self, url: str) -> None:
        if not self.is_answering:
            logger.info("controller answers", url=url)
        self.is_answering = True
        self._urls.remove(url)
        self._urls.insert(0, url)

    def _row_in(self, response: HttpResponse) -> KnownRow:
        view = parsed(BrokerGroupView, response, self._target)
        master, in_sync = _member(view.master), frozenset(map(_member, view.in_sync))
        if view.epoch < 1 or master not in in_sync:
            raise TransportError(f"the arbiter's row is invalid: {response.body!r:.300}")
        group = BrokerGroup(view.epoch, master, in_sync, view.unclean)
        row = GroupRow(group, tuple(view.replicas), view.min_in_sync, view.flush_mode)
        return KnownRow(view.version, row, view.by, view.number)


def _put_of(row: GroupRow, *, by: str, reason: str) -> BrokerGroupPut:
    group = row.group
    return BrokerGroupPut(
        epoch=group.epoch,
        master=_name(group.master),
        in_sync=[_name(member) for member in sorted(group.in_sync)],
        replicas=list(row.replicas),
        min_in_sync=row.min_in_sync,
        flush_mode=row.flush_mode,
        unclean=group.is_unclean,
        by=by,
        reason=reason,
    )


def _member(name: ReplicaName) -> Member:
    return Member(name.replica_id, name.uid)


def _name(member: Member) -> ReplicaName:
    return ReplicaName(replica_id=member.replica_id, uid=member.uid)
