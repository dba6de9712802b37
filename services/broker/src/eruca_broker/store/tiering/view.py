"""The tier as a store's readers see it: the latest manifest, through a cache on the disk.

The manifest is kept for the next start (:mod:`.known_manifest`), and so is the cache. The writer of
the tier shows each manifest that it has created; other brokers show those that they find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.core.tier.manifests import Manifest, TierSegment
from eruca_broker.core.tier.queue_tables import QueueTable
from eruca_broker.core.tier.queue_tables import decoded as decoded_head
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier.blobs import head_of
from eruca_broker.store.tier.cache import TierCache
from eruca_broker.store.tier.reader import TierReader
from eruca_broker.store.tiering.known_manifest import known, remember
from eruca_broker.store.tiering.place import TierPlace

logger = structlog.get_logger(__name__)


class TierView:
    """The tier of one log, as the readers of a store see it.

    Args:
        store: The store.
        place: The tier's objects.
        directory: The store's ``tier/``.
        cache_bytes_max: Bytes.
        doubt: Called if a reader has found the manifest to be too old.

    Attributes:
        cache: What was read of the tier.
        reader: Reads by the manifest that was shown last.
        latest: The latest manifest, for the next one; None: it must be read first.
    """

    def __init__(
        self,
        store: MessageStore,
        place: TierPlace,
        directory: Path,
        *,
        cache_bytes_max: int,
        doubt: Callable[[], None],
    ) -> None:
        self.cache = TierCache(directory / "cache", place.read, cache_bytes_max, doubt)
        self.reader = TierReader(self.cache, store.cold.begin, lambda: store.log_min_offset, doubt)
        self.latest: Manifest | None = None
        self._store = store
        self._place = place
        self._directory = directory

    async def open(self) -> None:
        """Begin to read by the manifest that was known last.

        Raises:
            OSError: The cache cannot be made.
        """
        await self.cache.open()
        await self._remember()
        self._store.queues.tier = self._store.whole_log.tier = self.reader

    async def close(self) -> None:
        """Stop reading: what must be fetched is refused until the next role reads the tier."""
        await self.cache.close()

    async def show(self, manifest: Manifest, log_begin: int) -> None:
        """Let readers read by *manifest*, and remember it for the next start.

        Args:
            manifest: The latest one.
            log_begin: Log offset of the log's beginning here, before it was looked for.
        """
        first = self.reader.first
        shown = self.reader.manifest
        head: bytes | None = None
        if not manifest.segments:
            first = None
        elif shown is None or not shown.segments or shown.segments[0] != manifest.segments[0]:
            head = await self._head_of(manifest.segments[0])
            first = decoded_head(head)
        self.latest, self._place.seen = manifest, manifest.number
        self.reader.show(manifest, first, log_begin)
        kept = partial(remember, self._directory, manifest, reached=self.reader.reached, head=head)
        await asyncio.to_thread(kept)

    async def table_of(self, segment: TierSegment) -> QueueTable:
        """Return a segment's table.

        Raises:
            UnavailableError: The tier cannot be read now.
            InvalidHeadError: It is of a later version.
        """
        return decoded_head(await self._head_of(segment))

    async def _remember(self) -> None:
        """Read by the manifest that the last process knew, if it is this log's."""
        try:
            found = await asyncio.to_thread(known, self._directory, self._store.state.log_id)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            logger.warning("the last manifest of the tier cannot be read here", reason=str(error))
            return
        self._place.seen = found.manifest.number
        if found.is_whole:
            self.reader.show(found.manifest, found.first, found.reached)

    async def _head_of(self, segment: TierSegment) -> bytes:
        blob = head_of(segment)
        await self.cache.fetch([blob])
        path = self.cache.find(blob)
        if path is None:
            raise UnavailableError("the tier's cache is too small for a head")
        return await asyncio.to_thread(path.read_bytes)
