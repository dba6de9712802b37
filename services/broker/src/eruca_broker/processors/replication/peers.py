"""The other replicas of the group, as one of them asks about before it becomes master."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from eruca.contract.broker_groups import Replica
from eruca.contract.errors import ErucaError
from eruca.contract.replication import ReplicationStatus
from eruca.services.cluster import parsed, send_model
from eruca.services.http import HttpTransport
from eruca_broker.core.replication.broker_group import Change, Member
from eruca_broker.core.replication.roles import Standing

ANSWER_SECONDS: Final = 0.5  # a replica that is slower has no part in this election
DEFAULT_NETWORK: Final = "default"
_TARGET: Final = "/v1/replication/status"


class Peers:
    """Asks replicas for their status.

    Args:
        transport: For the requests; the owner closes it.
    """

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport

    async def standings(self, replicas: Iterable[Replica]) -> list[Standing]:
        """Return the standings of those of *replicas* that answer."""
        urls = [replica.urls.get(DEFAULT_NETWORK) for replica in replicas]
        answers = await asyncio.gather(*(self.status(url) for url in urls if url is not None))
        return [
            Standing(
                Member(status.replica_id, status.uid),
                status.last_epoch,
                status.end,
                tuple(status.former_uids),
                status.priority,
                _skew_of(status),
                status.damaged,
                Change(status.known_epoch, status.known_number),
            )
            for status in answers
            if status is not None and status.replica_id is not None and status.uid is not None
        ]

    async def status(self, url: str) -> ReplicationStatus | None:
        """Return the status of the replica at *url*; None if it does not answer."""
        try:
            answer = await send_model(self._transport, "GET", url, _TARGET, timeout=ANSWER_SECONDS)
            return parsed(ReplicationStatus, answer, url + _TARGET)
        except ErucaError:
            return None  # it is down, or starting: it has no part in this election


def _skew_of(status: ReplicationStatus) -> float:
    following = status.following
    return (following.clock_skew_seconds or 0.0) if following is not None else 0.0
