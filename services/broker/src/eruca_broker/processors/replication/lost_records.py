"""Lost records: whether a replica may give up the damaged end of its log without an operator.

Nothing is deleted because of damage, unless another replica has it. If another one is the master,
that is certain: a master holds everything confirmed, and whatever it lacks was promised to nobody.
(After an unclean election it may lack confirmed records. But then every other log is truncated to
its own, damaged or not.) So the replica truncates its log at the damage, and copies the rest.

It takes another uid first, because it lacks records that it has acknowledged (rule 8). So it is no
longer in sync until it has everything again.

The replica that the row names as the master has nobody to copy from, and neither has a replica of a
group without a master. They wait for another one to take over, and leave it to their operator then.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from eruca.contract.errors import ErucaError
from eruca_broker.processors.replication.arbiter import Arbiter, UnansweredError
from eruca_broker.processors.replication.peers import DEFAULT_NETWORK, Peers

LOOK_SECONDS: Final = 0.5  # between two looks for a master
MASTER: Final = "master"

logger = structlog.get_logger(__name__)


async def may_give_up(
    arbiter: Arbiter, peers: Peers, replica_id: int, *, within_seconds: float
) -> bool:
    """Tell whether another replica is the master; wait for one.

    Args:
        arbiter: Of the group's row.
        peers: The other replicas.
        replica_id: Of the damaged one.
        within_seconds: How long to wait for a master.
    """
    try:
        async with asyncio.timeout(within_seconds):
            while True:
                has_master = await _has_master(arbiter, peers, replica_id)
                if has_master is not None:
                    return has_master
                await asyncio.sleep(LOOK_SECONDS)  # other processes have no event to wait for
    except TimeoutError:
        return False


async def _has_master(arbiter: Arbiter, peers: Peers, replica_id: int) -> bool | None:
    """Tell whether another replica is the master; None: one may become it."""
    try:
        row = await arbiter.read()
    except (UnansweredError, ErucaError) as error:
        logger.info("the broker group is not known yet", reason=str(error))
        return None
    others = (
        () if row is None else [one for one in row.row.replicas if one.replica_id != replica_id]
    )
    if row is None or not others:
        return False
    if row.group.master.replica_id == replica_id:
        return None
    url = row.row.urls_of(row.group.master).get(DEFAULT_NETWORK)
    status = None if url is None else await peers.status(url)
    leads = status is not None and (status.role, status.epoch) == (MASTER, row.group.epoch)
    return True if leads else None
