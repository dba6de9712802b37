"""A repository in an object store, by obstore: S3, Google Cloud Storage, Azure.

The store's own environment variables have its credentials. An object is created by a conditional
request (``If-None-Match: *``). If the answer to that is lost and the request repeated, the store
refuses it: then the object's content tells whether it is ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from eruca.contract.errors import TransportError, ValidationError
from eruca.objects.repositories import PathTakenError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

INSTALLATION: Final = "in a copy of Eruca's repository: pip install './sdk[cli,backup]'"
_PART_SIZE: Final = 8 * 1024 * 1024  # bytes of one request of an upload; a store takes 10,000


class ObjectRepository:
    """The objects of a store below a folder.

    Args:
        store: The store.
        folder: The first part of all paths.
        url: The store's, for errors.
    """

    def __init__(self, store: ObjectStore, folder: str, url: str) -> None:
        self._store = store
        self._folder = folder
        self._url = url

    @classmethod
    def of_url(cls, url: str, folder: str, installation: str = INSTALLATION) -> Self:
        """Return the repository at *url*.

        Raises:
            ValidationError: obstore is not installed, or does not know the URL.
        """
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            if error.name != "obstore":
                raise
            raise ValidationError(
                f"{url} needs the package obstore", fix=f"install it ({installation})"
            ) from error
        try:
            return cls(from_url(url), folder, url)
        except (BaseError, OSError, ValueError) as error:
            raise ValidationError(f"{url}: {_line(error)}") from error

    def __str__(self) -> str:
        return f"{self._url.rstrip('/')}/{self._folder}"

    async def put(self, path: str, data: bytes) -> None:
        """Write an object; see :class:`.Repository`."""
        from obstore import put_async

        with self._failures(path):
            await put_async(self._store, self._path(path), data)

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Write an object of many parts; see :class:`.Repository`."""
        from obstore import put_async

        with self._failures(path):
            await put_async(
                self._store, self._path(path), parts, chunk_size=_PART_SIZE, max_concurrency=2
            )

    async def create(self, path: str, data: bytes) -> None:
        """Write an object that is new; see :class:`.Repository`."""
        from obstore import put_async
        from obstore.exceptions import AlreadyExistsError

        with self._failures(path):
            try:
                await put_async(self._store, self._path(path), data, mode="create")
            except AlreadyExistsError:
                if await self.get(path) != data:
                    raise PathTakenError(path) from None

    async def get(self, path: str) -> bytes:
        """Return an object's bytes; see :class:`.Repository`."""
        from obstore import get_async

        with self._failures(path):
            answer = await get_async(self._store, self._path(path))
            return bytes(await answer.bytes_async())

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        """Return some of an object's bytes; see :class:`.Repository`."""
        from obstore import get_range_async

        with self._failures(path):
            return bytes(await get_range_async(self._store, self._path(path), start=begin, end=end))

    async def sizes(self, folder: str, *, after: str | None = None) -> dict[str, int]:
        """Return the sizes of all objects below *folder*; see :class:`.Repository`."""
        import obstore

        found: dict[str, int] = {}
        offset = None if after is None else self._path(after)
        with self._failures(folder):
            listed = obstore.list(self._store, self._path(folder), offset=offset, chunk_size=1000)
            async for some in listed:
                for one in some:
                    found[str(one["path"]).removeprefix(f"{self._folder}/")] = int(one["size"])
        return found

    async def delete(self, paths: list[str]) -> None:
        """Delete objects; see :class:`.Repository`."""
        from obstore import delete_async

        at_once = [paths] if paths else []
        for some in (*at_once, *([path] for path in paths)):
            try:
                with self._failures(some[0]):
                    await delete_async(self._store, [self._path(path) for path in some])
            except FileNotFoundError:
                continue  # some stores report one that is missing: then each is deleted by itself
            if some is paths:
                return

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}"

    @contextmanager
    def _failures(self, path: str) -> Iterator[None]:
        """Raise the store's errors as the protocol's."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self}/{path} does not exist") from error
        except (BaseError, OSError) as error:
            raise TransportError(
                f"{self}/{path}: {_line(error)}",
                fix="check the store's URL and credentials, and try again",
            ) from error


def _line(error: Exception) -> str:
    """Return the first line of an error; obstore's have many."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
