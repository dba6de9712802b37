"""Replication: the master's log for its replicas, their lineage, and a broker's part in its group.

The log is a hot route, because the latency of a send depends on it: each publication waits for a
replica's fetch.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Final

from fastapi import Body, Query

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
from eruca.contract.fields import OFFSET_MAX, Offset
from eruca.contract.limits import STORE_UID_SIZE_MAX
from eruca.contract.replication import (
    ANSWER_HEADER,
    CONFIRMED_HEADER,
    NOW_HEADER,
    RUN_MEDIA_TYPE,
    RUN_SIZE_DEFAULT,
    RUN_SIZE_MAX,
    FetchWaitSeconds,
    LineageAnswer,
    LineageRequest,
    ReplicationStatus,
    SwitchRequest,
    SwitchResult,
)
from eruca.contract.wire import EPOCH_HEADER, MAX_OFFSET_HEADER, MIN_OFFSET_HEADER
from eruca_broker.api.examples import replication as examples
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.processors.replication.feed import Feed, Fetch
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.switching import Switching
from eruca_chassis.connections.exchange import AnswerHead, Exchange, RequestHead
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.documents.schemas import described, in_octets
from eruca_chassis.hot_router import HotEndpoint, HotRouter
from eruca_chassis.parts import Part
from eruca_chassis.requests.heads import fault

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
_UID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{STORE_UID_SIZE_MAX}}}")
_REFUSALS: Final = (StaleEpochError, ForeignReplicaError, NotMasterError, OverloadedError)


@router.hot(
    "GET",
    "/log",
    operation_id="pullRun",
    summary="Pull a run of the log, and acknowledge what is before it",
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
    """Send a replica the writes of this master's log from `from_offset` on.

    The request is an acknowledgement as well: the replica holds everything before `from_offset`, as
    durably as the group promises. What is confirmed by that becomes visible at once. A replica that
    has not proved its lineage in this epoch is refused, and so is one that claims what this log
    does not have.

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
        from_offset: Annotated[
            Offset, Query(description="The replica holds everything before.", examples=[8_201_544])
        ],
        epoch: Annotated[GroupEpoch, Query(examples=[7])],
        replica_id: Annotated[ReplicaId, Query(examples=[2])],
        uid: Annotated[StoreUid, Query(examples=["9f31c2d07be84a15"])],
        last_answer: Annotated[
            int,
            Query(
                alias="answer",
                ge=0,
                le=OFFSET_MAX,
                description="Number of the last answer that it received in this epoch; 0: none.",
            ),
        ] = 0,
        wait_seconds: Annotated[
            FetchWaitSeconds, Query(description="The time to wait at the log's end.")
        ] = 0,
        bytes_max: Annotated[
            int,
            Query(
                ge=1,
                le=RUN_SIZE_MAX,
                description="Maximum bytes of the run; the first write is always returned.",
            ),
        ] = RUN_SIZE_DEFAULT,
    ) -> Fetch:
        """Return the fetch."""
        if not _UID.fullmatch(uid):
            raise fault("query", "uid", "expected the uid of a store")
        member = Member(replica_id, uid)
        return Fetch(member, epoch, from_offset, last_answer, wait_seconds, bytes_max)

    def handle(self, exchange: Exchange) -> None:
        """Answer with what there is, or once there is something; then publish."""
        fetch: Fetch = exchange.request.meaning
        feed = self._replication.the_feed()
        feed.acknowledge(fetch)
        if feed.has_run(fetch) or not fetch.wait_seconds:
            self._answer(exchange, feed, fetch)
        else:
            wake = partial(exchange.resume, self._answer, exchange, feed, fetch)
            exchange.on_lost = feed.hold(fetch, wake)
        feed.confirm()

    def _answer(self, exchange: Exchange, feed: Feed, fetch: Fetch) -> None:
        run = feed.run(fetch)
        values = (
            *(run.epoch, run.confirmed, run.min_offset),
            *(run.max_offset, run.number, run.now_ms),
        )
        headers = zip(_NAMES, (b"%d" % value for value in values), strict=True)
        exchange.answer(AnswerHead(200, _CONTENT_TYPE, *headers), *run.pieces)


@router.post(
    "/lineage",
    operation_id="proveLineage",
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
    summary="Get this broker's part in its group",
    responses=answer(examples.REPLICATION_STATUS),
)
async def get_replication_status(replication: Part[Replication]) -> ReplicationStatus:
    """Return role, epoch and progress: of all replicas at the master, of its own at a standby."""
    return replication.status()


@router.post(
    "/switch",
    operation_id="switchMaster",
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
