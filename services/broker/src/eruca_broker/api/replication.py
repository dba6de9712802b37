"""Replication: the master's log for its replicas, their lineage, and a broker's part in its group.

The log is a hot route, because the latency of a send depends on it: each publication waits for a
replica's fetch.
"""

from __future__ import annotations

import asyncio
import re
import sys
from functools import partial
from typing import Annotated, Final

from fastapi import Body, Query

from eruca.contract.access import Right
from eruca.contract.broker_groups import GroupEpoch, ReplicaId, StoreUid
from eruca.contract.errors import (
    ConflictError,
    ForeignReplicaError,
    NotMasterError,
    NotMasterForSureError,
    OverloadedError,
    StaleEpochError,
    UnavailableError,
)
from eruca.contract.limits import STORE_UID_SIZE_MAX
from eruca.contract.replication import (
    ANSWER_HEADER,
    NOW_HEADER,
    RUN_MEDIA_TYPE,
    LineageAnswer,
    LineageRequest,
    ReplicationStatus,
    RunRequest,
    SwitchRequest,
    SwitchResult,
)
from eruca.contract.wire import CONFIRMED_HEADER, EPOCH_HEADER, MAX_OFFSET_HEADER, MIN_OFFSET_HEADER
from eruca_access.needs import see, to
from eruca_broker.api.bodies import StructBody
from eruca_broker.api.examples import replication as examples
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.fetches import Fetch
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.switching import Switching
from eruca_chassis.admission.needs import OWN
from eruca_chassis.connections.exchange import AnswerHead, BodyLimit, Exchange, RequestHead
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.documents.schemas import described, in_octets
from eruca_chassis.requests.heads import fault
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter
from eruca_chassis.routes.parts import Part

router = HotRouter(prefix="/v1/replication", tags=["replication"])

_RUN: Final = in_octets(RUN_MEDIA_TYPE)
_CONTENT_TYPE: Final = (b"content-type", RUN_MEDIA_TYPE.encode())
_HEADERS: Final = {
    EPOCH_HEADER: "the master's epoch",
    CONFIRMED_HEADER: "log offset before which everything is confirmed",
    MIN_OFFSET_HEADER: "log offset of the master's first record",
    MAX_OFFSET_HEADER: "log offset of the master's next record",
    ANSWER_HEADER: "number of this answer; the next fetch quotes it",
    NOW_HEADER: "time of the master's clock, in ms since 1970",
}
_NAMES: Final = tuple(name.encode() for name in _HEADERS)
BODY_SIZE_MAX: Final = 4_096  # bytes of a request for a run
_UID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{STORE_UID_SIZE_MAX}}}")
_REFUSALS: Final = (StaleEpochError, ForeignReplicaError, NotMasterError, OverloadedError)


class _Unlimited:
    """The budget of bodies that are too small to count: no other request delays a replica's."""

    name = "unlimited"
    maximum = sys.maxsize

    def take(self, amount: int, client: str) -> None:
        pass

    def give(self, amount: int, client: str) -> None:
        pass


_BODY: Final = StructBody(RunRequest, examples.RUN_REQUEST)
_BODY_LIMIT: Final = BodyLimit(_Unlimited(), BODY_SIZE_MAX, "body_size_max")


@router.hot(
    "POST",
    "/log",
    operation_id="pullRun",
    needs=to(Right.ADMINISTER, broker=OWN, is_routine=True),
    summary="Acknowledge a part of the log, and pull the next run",
    takes=(_BODY.content,),
    responses={
        200: {
            "description": "Whole writes of the log, byte for byte; empty: nothing is new.",
            "content": described(_RUN),
            "headers": {
                name: {"description": text, "schema": {"type": "integer", "format": "int64"}}
                for name, text in _HEADERS.items()
            },
        }
    }
    | problems(*_REFUSALS, UnavailableError),
)
class PullRun(HotEndpoint):
    """Send a replica the next writes of this master's log.

    The request is an acknowledgement as well: the replica holds everything before `acknowledged`,
    as durably as the group promises. What is confirmed by that becomes visible at once. A replica
    that has not proved its lineage in this epoch is refused, and so is one that claims what this
    log does not have.

    Runs form a sequence. A request whose `sequence` is 0 begins one, where the replica's log ends.
    Later requests name its first answer, and continue where the last run ended. So several may be
    under way: the replica requests runs before it has stored, and acknowledged, earlier ones. The
    numbers of the answers tell the order of the runs.

    At the log's end the request is held for up to `wait_seconds`. It is answered as soon as
    something is written. It is answered without a run a few milliseconds after the confirmed offset
    has moved.
    """

    def __init__(self, replication: Replication) -> None:
        self._replication = replication

    @staticmethod
    def read(
        head: RequestHead,
        *,
        epoch: Annotated[GroupEpoch, Query(examples=[7])],
        replica_id: Annotated[ReplicaId, Query(examples=[2])],
        uid: Annotated[StoreUid, Query(examples=["9f31c2d07be84a15"])],
    ) -> tuple[Member, int]:
        """Return the replica's store, and the epoch that it follows."""
        if not _UID.fullmatch(uid):
            raise fault("query", "uid", "expected the uid of a store")
        return Member(replica_id, uid), epoch

    def admit(self, exchange: Exchange) -> None:
        """Request the body."""
        exchange.expect_body(_BODY_LIMIT)

    def handle(self, exchange: Exchange) -> None:
        """Answer with what there is, or once there is something; then publish."""
        member, epoch = exchange.request.meaning
        asked = _BODY.read(exchange.body)
        fetch = Fetch(
            *(member, epoch, asked.acknowledged, asked.answer),
            *(asked.wait_seconds, asked.bytes_max, asked.sequence),
        )
        feed = self._replication.the_feed()
        feed.acknowledge(fetch)
        if feed.has_run(fetch) or not fetch.wait_seconds:
            self._wake(exchange, feed, fetch, may_have_run=True)
            asyncio.get_running_loop().call_soon(feed.confirm)  # once the answer is on its way
            return
        exchange.on_lost = feed.hold(fetch, partial(self._wake, exchange, feed, fetch))
        feed.confirm()

    def _wake(self, exchange: Exchange, feed: Feed, fetch: Fetch, *, may_have_run: bool) -> None:
        count = feed.sequence_count(fetch)
        answer = partial(self._answer, exchange, feed, fetch, count, may_have_run=may_have_run)
        exchange.resume(answer)

    def _answer(
        self,
        exchange: Exchange,
        feed: Feed,
        fetch: Fetch,
        sequence_count: int,
        *,
        may_have_run: bool,
    ) -> None:
        run = feed.run(fetch, sequence_count, may_have_run=may_have_run)
        values = (
            *(run.epoch, run.confirmed, run.min_offset),
            *(run.max_offset, run.number, run.now_ms),
        )
        headers = zip(_NAMES, (b"%d" % value for value in values), strict=True)
        exchange.answer(AnswerHead(200, _CONTENT_TYPE, *headers), *run.pieces)


@router.post(
    "/lineage",
    operation_id="proveLineage",
    needs=to(Right.ADMINISTER, broker=OWN, is_routine=True),
    summary="Compare a replica's log with the master's",
    responses=answer(examples.LINEAGE_ANSWER) | problems(*_REFUSALS),
)
async def prove_lineage(
    replication: Part[Replication],
    request: Annotated[LineageRequest, Body(examples=[examples.LINEAGE])],
) -> LineageAnswer:
    """Return the log offset up to which both logs are equal, and which bytes before it to prove.

    The second request has the digest of these bytes. If they are the master's too, and the
    replica's log ends there, `proved` is true: its fetches count from now on. If its log is longer,
    the replica truncates it to `cut_to` and begins again. A log that is not the master's is 409
    `foreign-replica`; nothing is truncated.

    An empty replica begins at `cut_to`, the beginning of the master's log.
    """
    return replication.the_feed().prove(request)


@router.get(
    "/status",
    operation_id="getReplicationStatus",
    needs=see(broker=OWN),
    summary="Get this broker's part in its group",
    responses=answer(examples.REPLICATION_STATUS),
)
async def get_replication_status(replication: Part[Replication]) -> ReplicationStatus:
    """Return role, epoch and progress: of all replicas at the master, of its own at a standby."""
    return replication.status()


@router.post(
    "/switch",
    operation_id="switchMaster",
    needs=to(Right.ADMINISTER, broker=OWN),
    summary="Let another replica become master",
    responses=answer(examples.SWITCH_RESULT)
    | problems(ConflictError, NotMasterError, NotMasterForSureError),
)
async def switch_master(
    switching: Part[Switching],
    request: Annotated[SwitchRequest, Body(examples=[examples.SWITCH])],
) -> SwitchResult:
    """Hand over to a replica that is in sync: the one named, or the one that has acknowledged most.

    The master accepts nothing new until the successor has everything, and the arbiter has named it.
    Nothing that was acknowledged is lost, and no send is left in doubt. Requests are redirected to
    the successor from then on; it answers them within moments. If the successor does not follow
    fast enough, this replica remains the master.
    """
    return await switching.to(request.to)
