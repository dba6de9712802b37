"""The proof of a replica's lineage: its log is a beginning of its master's, or must be truncated.

Two requests: the first asks how far both logs agree, the second has the digest of what is before
that place (``core/replication/lineage.py``, rule 9).
"""

from __future__ import annotations

from typing import Final

import structlog

from eruca.contract.errors import ForeignReplicaError, StaleEpochError, TransportError
from eruca.contract.replication import LineageAnswer, LineageRequest, LineageTail
from eruca.services.cluster import parsed, send_model
from eruca.services.http import HttpTransport
from eruca_broker.core.log.recovery import walk
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.core.replication.lineage import UncleanCutError, check_cut
from eruca_broker.processors.replication.lineage import digest_of, epoch_table, log_epochs
from eruca_broker.store.message_store import MessageStore

ANSWER_SECONDS: Final = 5.0  # for an answer
PROOFS_MAX: Final = 4  # questions of one proof; more only if the master's retention interferes
_TARGET: Final = "/v1/replication/lineage"

logger = structlog.get_logger(__name__)


class LineageProof:
    """One proof, of one store before one master.

    Args:
        store: The replica's store.
        member: It, as the group names it.
        epoch: The master's term.
        url: The master's.
        transport: For the requests; the owner closes it.
        shown_offset: Log offset before which everything is known to be confirmed.

    Attributes:
        confirmed: The same, as the master has told, and no further than a cut.
        epochs: Those of the master's log, as it has told.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        member: Member,
        epoch: int,
        url: str,
        transport: HttpTransport,
        shown_offset: int,
    ) -> None:
        self.confirmed = shown_offset
        self.epochs = EpochTable()
        self._store = store
        self._member = member
        self._epoch = epoch
        self._url = url
        self._transport = transport

    async def run(self) -> int | None:
        """Prove the lineage; return the log offset to truncate at, or None: it is proved.

        Raises:
            ForeignReplicaError: The logs do not have a common beginning.
            ErucaError: The master cannot be asked now.
        """
        store, tail = self._store, None
        if (last := store.role.epochs().last) > self._epoch:
            raise ForeignReplicaError(
                f"the master's epoch {self._epoch} is older than epoch {last} of this log: the "
                "arbiter has lost changes",
                fix="raise the broker group's epoch at the arbiter",
            )
        for _ in range(PROOFS_MAX):
            answer = await self._ask(tail)
            self.epochs = epoch_table(answer.epochs)
            if answer.proved:
                self.confirmed = max(self.confirmed, answer.confirmed)
                return None
            if store.log_min_offset == store.log_max_offset:
                store.role.begin_at(answer.cut_to, segment_bytes=answer.segment_bytes)
                continue
            begin, end = store.log_min_offset, store.log_max_offset
            if not begin <= answer.tail_begin < answer.cut_to <= end:
                raise TransportError(f"{self._url}: the answer's offsets are outside this log")
            if tail is not None and (tail.begin, tail.end) == (answer.tail_begin, answer.cut_to):
                self._check_cut(answer)
                return answer.cut_to
            tail = LineageTail(
                begin=answer.tail_begin,
                end=answer.cut_to,
                digest=digest_of(store.log.pieces(answer.tail_begin, answer.cut_to)),
            )
        raise TransportError(f"{self._url}: the lineage was not proved in {PROOFS_MAX} answers")

    async def _ask(self, tail: LineageTail | None) -> LineageAnswer:
        store = self._store
        request = LineageRequest(
            replica_id=self._member.replica_id,
            uid=self._member.uid,
            epoch=self._epoch,
            log_id=store.state.log_id or None,
            epochs=log_epochs(store.role.epochs()),
            min_offset=store.log_min_offset,
            end=store.log_max_offset,
            segment_bytes=store.segment_bytes,
            tail=tail,
        )
        response = await send_model(
            *(self._transport, "POST", self._url, _TARGET, request),
            timeout=ANSWER_SECONDS,
        )
        answer = parsed(LineageAnswer, response, self._url + _TARGET)
        if answer.epoch != self._epoch:
            raise StaleEpochError(f"expected epoch {self._epoch}, found {answer.epoch}")
        return answer

    def _check_cut(self, answer: LineageAnswer) -> None:
        """Check that the log may be truncated, and log what goes."""
        shown, end = self.confirmed, self._store.log_max_offset
        try:
            check_cut(answer.cut_to, visible_offset=min(shown, end), master=self.epochs)
        except UncleanCutError as error:
            raise ForeignReplicaError(str(error)) from error
        is_loss = answer.cut_to < min(shown, end)
        write = logger.error if is_loss else logger.warning
        write(
            "confirmed records go: an operator chose a master that lacked them"
            if is_loss
            else "the log's unconfirmed end is truncated",
            log_offset=answer.cut_to,
            log_end=end,
            records=self._record_count(answer.cut_to, end),
            epoch=self._epoch,
        )
        self.confirmed = min(shown, answer.cut_to)

    def _record_count(self, begin: int, end: int) -> int:
        count = 0
        for piece in self._store.log.pieces(begin, end):
            for step in walk(piece, 0, begin):
                count += 0 if step.columns is None else len(step.columns.starts)
            begin += len(piece)
        return count
