"""The place of one log in an object store: its manifests, and the objects that they name.

Each request is bounded in time (:func:`.uploads.answered`), and fails as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eruca.contract.errors import ErucaError, UnavailableError
from eruca.objects.repositories import Repository
from eruca_broker.core.tier.manifests import (
    MANIFESTS,
    SEGMENTS,
    InvalidManifestError,
    Manifest,
    TierSegment,
    decoded,
    encoded,
    name_of,
    number_of,
)
from eruca_broker.core.tier.steps import TierMismatchError, check_place, is_whole
from eruca_broker.store.tiering.uploads import answered


class TierPlace:
    """The folder of one log.

    Args:
        repository: The tier's place, for brokers of this name.
        log_id: Returns the log's id.

    Attributes:
        seen: The highest number of a manifest that this store has seen; 0: none.
    """

    def __init__(self, repository: Repository, log_id: Callable[[], str]) -> None:
        self.repository = repository
        self.seen = 0
        self._log_id = log_id

    def path(self, path: str) -> str:
        """Return an object's path in the repository, by the one in manifests."""
        return f"{self._log_id()}/{path}"

    async def read(self, path: str, begin: int, end: int) -> bytes:
        """Return bytes of an object; see :meth:`.Repository.get_range`."""
        return await self.repository.get_range(self.path(path), begin, end)

    async def sizes(self, folder: str, after: str | None = None) -> dict[str, int]:
        """Return the sizes of the log's objects in *folder*, by their paths in manifests."""
        strip = len(self.path(""))
        async with answered():
            listed = await self.repository.sizes(self.path(folder), after=after)
        return {path[strip:]: size for path, size in listed.items()}

    async def latest(self) -> int:
        """Return the number of the latest manifest; 0: there is none.

        Raises:
            ErucaError: The tier cannot be read now.
            OSError: The same.
            TierMismatchError: The place lacks manifests that it had.
        """
        # The one that was seen last must be listed, else this is another place.
        after = self.path(name_of(self.seen - 1)) if self.seen > 1 else None
        listed = await self.sizes(MANIFESTS, after)
        latest = max((number_of(path) or 0 for path in listed), default=0)
        check_place(latest, self.seen)
        return latest

    async def check(self) -> None:
        """Return if the tier answers, and its place is that of before.

        Raises:
            UnavailableError: It is not; or the tier cannot be read now.
        """
        try:
            await self.latest()
        except (ErucaError, OSError, TierMismatchError) as error:
            text = error.detail if isinstance(error, ErucaError) else str(error)
            raise UnavailableError(f"the tier cannot be read: {text}") from error

    async def check_stored(self, segments: Sequence[TierSegment]) -> None:
        """Return if the objects of *segments* are where they have just been stored.

        Raises:
            UnavailableError: They are not: the place may have been replaced by another one.
        """
        sizes = await self.sizes(SEGMENTS, self.path(f"{SEGMENTS}/{segments[0].base:020d}"))
        for segment in segments:
            if not is_whole(segment, sizes):
                raise UnavailableError(
                    f"the tier lacks {segment.path}, or what belongs to it, or has it in another "
                    f"size than {segment.end - segment.base} bytes: look whether its place is "
                    "mounted, and whether something else deletes objects there"
                )

    async def manifest(self, number: int) -> Manifest:
        """Return a manifest.

        Raises:
            ErucaError: The tier cannot be read now, or a later one has replaced it.
            OSError: The same.
            InvalidManifestError: It is damaged, or of a later version.
        """
        path = name_of(number)
        async with answered():
            data = await self.repository.get(self.path(path))
        if not data:
            raise UnavailableError(f"the tier's manifest {path} was replaced meanwhile")
        try:
            return decoded(data, number=number, log_id=self._log_id())
        except InvalidManifestError as error:
            raise InvalidManifestError(f"{path} of the tier: {error}") from error

    async def create(self, manifest: Manifest) -> None:
        """Store a manifest under its number.

        Raises:
            PathTakenError: Another one has the number.
            ErucaError: Nobody knows whether it is stored.
            OSError: The same.
        """
        async with answered():
            await self.repository.create(self.path(name_of(manifest.number)), encoded(manifest))

    async def empty(self, number: int) -> None:
        """Empty an overtaken manifest: its number is never free again."""
        async with answered():
            await self.repository.put(self.path(name_of(number)), b"")

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, which a manifest has condemned."""
        async with answered():
            await self.repository.delete([self.path(path) for path in paths])
