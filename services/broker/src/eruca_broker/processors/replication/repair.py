"""Repair: replace a damaged record by another replica's copy (rule 11).

The scrub names a damaged record. All members of the in-sync set have the same confirmed bytes, so
any of them will do. The store accepts a copy only if it can be nothing else
(:mod:`eruca_broker.store.upkeep.record_repair`). A replica whose damage no other one could repair
does not propose itself as master; each round of the scrub tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from eruca.contract.errors import ErucaError
from eruca.contract.wire import LOG_MEDIA_TYPE
from eruca.services.http import HttpTransport, problem_error
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.store.upkeep.record_repair import RefusedCopyError
from eruca_broker.store.upkeep.upkeep import StoreUpkeep

COPY_SECONDS: Final = 5.0  # for one record

logger = structlog.get_logger(__name__)


class Repair:
    """Repairs the records of one replica's log.

    Args:
        upkeep: Repairs the replica's store.
        replication: Knows whether damage is left.
        urls: Returns the URLs of the other members of the in-sync set.
        transport: For the requests; the owner closes it.
    """

    def __init__(
        self,
        upkeep: StoreUpkeep,
        replication: Replication,
        urls: Callable[[], Sequence[str]],
        transport: HttpTransport,
    ) -> None:
        self._upkeep = upkeep
        self._replication = replication
        self._urls = urls
        self._transport = transport
        self._damaged: set[int] = set()  # log offsets of records that could not be repaired

    async def at(self, log_offset: int) -> bool:
        """Replace the damaged record at *log_offset*; tell whether it is sound now."""
        for url in self._urls():
            try:
                await self._upkeep.mend(log_offset, await self._copy_from(url, log_offset))
            except (ErucaError, RefusedCopyError, OSError) as error:
                logger.warning(
                    "a damaged record is not repaired",
                    log_offset=log_offset,
                    peer=url,
                    reason=str(error),
                )
            else:
                self._note(log_offset, is_damaged=False)
                return True
        self._note(log_offset, is_damaged=True)
        return False

    def _note(self, log_offset: int, *, is_damaged: bool) -> None:
        if is_damaged:
            self._damaged.add(log_offset)
        else:
            self._damaged.discard(log_offset)
        self._replication.is_damaged = bool(self._damaged)

    async def _copy_from(self, url: str, log_offset: int) -> bytes:
        target = f"/v1/log/records/{log_offset}"
        answer = await self._transport.request(
            "GET", url, target, headers=[("accept", LOG_MEDIA_TYPE)], timeout=COPY_SECONDS
        )
        if answer.status != 200:
            raise problem_error(answer, f"GET {url}{target}")
        return answer.body
