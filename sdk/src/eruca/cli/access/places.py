"""The two places of a policy: a file, and the controllers. Commands change both alike."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from eruca.cli.replicas.controllers import VARIABLE, ControllerOption, controller_urls

if TYPE_CHECKING:
    from eruca.cli.replicas.controllers import Controllers
    from eruca.cli.session import Session
    from eruca.contract.access import PolicyDocument, StoredKey
    from eruca.contract.policies import PolicyChange, PolicyPreview, PolicyView

FILE_VARIABLE: Final = "ERUCA_AUTH_FILE"
ATTEMPT_COUNT: Final = 5  # changes of a policy that others change at the same time

FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help=f"The file of rules [{FILE_VARIABLE}].", show_default=False),
]
__all__ = ["ControllerOption", "FileOption", "place_of", "read_file"]


class PolicyPlace(Protocol):
    """A policy that can be read, and whose keys can be changed."""

    async def read(self) -> PolicyDocument:
        """Return the policy."""
        ...

    async def add_key(self, key: StoredKey, *, ends: StoredKey | None = None) -> None:
        """Add *key*; *ends* is an existing one with its new expiry."""
        ...

    async def remove_key(self, key_id: str) -> None:
        """Remove a key."""
        ...


class FilePolicy:
    """The policy in a file; its author's comments and order stay.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> PolicyDocument:
        """Return the policy."""
        return read_file(self._path)

    async def add_key(self, key: StoredKey, *, ends: StoredKey | None = None) -> None:
        """Add *key*; *ends* is an existing one with its new expiry. Create a missing file."""
        from eruca.core.access.policy_text import with_expiry, with_key

        text = self._path.read_text() if self._path.exists() else ""
        if ends is not None:
            text = with_expiry(text, ends)
        self._replace(with_key(text, key))

    async def remove_key(self, key_id: str) -> None:
        """Remove a key."""
        from eruca.core.access.policy_text import without_key

        self._replace(without_key(self._path.read_text(), key_id))

    def _replace(self, text: str) -> None:
        """Replace the file as a whole, readable by its owner only if it is new."""
        mode = self._path.stat().st_mode & 0o777 if self._path.exists() else 0o600
        new = self._path.with_name(f".{self._path.name}.new")
        write_private(new, text, mode)
        new.replace(self._path)


class ControllerPolicy:
    """The policy at the controllers.

    Args:
        controllers: Answer requests.
    """

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers

    async def view(self) -> PolicyView | None:
        """Return the policy with its version; None: there is none yet."""
        from eruca.contract.errors import NotFoundError
        from eruca.contract.policies import PolicyView

        try:
            return await self._controllers.answered(PolicyView, "GET", "/v1/policy")
        except NotFoundError:
            return None

    async def version(self, number: int) -> PolicyView:
        """Return the version of this number.

        Raises:
            NotFoundError: There is no such version.
        """
        from eruca.contract.policies import PolicyView

        return await self._controllers.answered(PolicyView, "GET", f"/v1/policy/versions/{number}")

    async def read(self) -> PolicyDocument:
        """Return the policy; an empty one if there is none yet."""
        from eruca.contract.access import PolicyDocument

        view = await self.view()
        return PolicyDocument() if view is None else view.policy

    async def preview(self, policy: PolicyDocument, reason: str) -> PolicyPreview:
        """Return what a change would do."""
        from eruca.contract.policies import PolicyPreview

        return await self._controllers.answered(
            PolicyPreview, "POST", "/v1/policy:preview", body=_body(policy, reason)
        )

    async def put(
        self, policy: PolicyDocument, *, version: str | None, reason: str, above: int = 0
    ) -> PolicyView:
        """Replace the policy if it still has *version*; None: store the first one.

        Raises:
            PreconditionFailedError: Somebody else has changed it first.
        """
        from eruca.contract.policies import PolicyView

        condition = ("if-none-match", "*") if version is None else ("if-match", f'"{version}"')
        target = f"/v1/policy?above={above}" if above else "/v1/policy"
        return await self._controllers.answered(
            PolicyView, "PUT", target, headers=(condition,), body=_body(policy, reason)
        )

    async def history(self, *, limit: int) -> list[PolicyChange]:
        """Return the last changes, the newest first."""
        from eruca.aio.http.transport import target_of
        from eruca.contract.policies import PolicyHistory

        found: list[PolicyChange] = []
        cursor: str | None = None
        while True:
            page = await self._controllers.answered(
                PolicyHistory, "GET", target_of("/v1/policy/history", cursor=cursor)
            )
            found += page.changes
            cursor = page.next_cursor
            if cursor is None or len(found) >= limit:
                return found[:limit]

    async def add_key(self, key: StoredKey, *, ends: StoredKey | None = None) -> None:
        """Add *key*; *ends* is an existing one with its new expiry."""

        def changed(keys: list[StoredKey]) -> list[StoredKey]:
            kept = [ends if ends is not None and ends.id == one.id else one for one in keys]
            return [*kept, key]

        what = f"key {key.id} of {key.principal}"
        await self._change_keys(changed, what if ends is None else f"{what} replaces {ends.id}")

    async def remove_key(self, key_id: str) -> None:
        """Remove a key."""

        def changed(keys: list[StoredKey]) -> list[StoredKey]:
            key_of(keys, key_id)
            return [key for key in keys if key.id != key_id]

        await self._change_keys(changed, f"key {key_id} is revoked")

    async def _change_keys(
        self, changed: Callable[[list[StoredKey]], list[StoredKey]], reason: str
    ) -> None:
        from eruca.contract.access import PolicyDocument
        from eruca.contract.errors import PreconditionFailedError

        for attempt in range(ATTEMPT_COUNT):
            view = await self.view()
            policy = PolicyDocument() if view is None else view.policy
            policy = policy.model_copy(update={"keys": changed(policy.keys)})
            try:
                await self.put(
                    policy, version=None if view is None else view.version, reason=reason
                )
            except PreconditionFailedError:
                if attempt == ATTEMPT_COUNT - 1:
                    raise
            else:
                return


@asynccontextmanager
async def place_of(
    session: Session, file: Path | None, controller: str | None
) -> AsyncIterator[PolicyPlace]:
    """Yield the place that the options name, else the one that the environment names."""
    path = _file_of(file, controller)
    if path is not None:
        yield FilePolicy(path)
        return
    async with controllers_of(session, controller) as policy:
        yield policy


@asynccontextmanager
async def controllers_of(
    session: Session, controller: str | None
) -> AsyncIterator[ControllerPolicy]:
    """Yield the policy at the controllers."""
    from eruca.cli.replicas.controllers import Controllers

    async with session.client() as client:
        urls = await controller_urls(client, controller)
        yield ControllerPolicy(Controllers(client.context.transport, urls))


def _file_of(file: Path | None, controller: str | None) -> Path | None:
    """Return the file of rules; None: the rules are those of the controllers."""
    if file is not None and controller is not None:
        raise typer.BadParameter("name one place of the rules: --file or --controller")
    if file is not None:
        return file
    if controller is not None:
        return None
    environment = os.environ
    if name := environment.get(FILE_VARIABLE):
        return Path(name)
    if environment.get("ERUCA_AUTH") == "controller" or environment.get(VARIABLE):
        return None
    raise typer.BadParameter(
        f"name the place of the rules: --file or {FILE_VARIABLE}, or --controller or {VARIABLE}"
    )


def key_of(keys: list[StoredKey], key_id: str) -> StoredKey:
    """Return a key by its id.

    Raises:
        ClientError: There is no such key.
    """
    from eruca.contract.errors import ClientError

    for key in keys:
        if key.id == key_id:
            return key
    raise ClientError(f"there is no key {key_id}", fix="list the keys: eruca auth key list")


def read_file(path: Path) -> PolicyDocument:
    """Return the policy in a file; one in JSON may be the copy that a service keeps.

    Raises:
        InvalidPolicyError: It has a mistake.
    """
    from eruca.core.access.policy_text import parse_kept_policy, parse_policy

    text = path.read_text()
    return parse_kept_policy(text) if path.suffix == ".json" else parse_policy(text)


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file durably, with this mode from its beginning."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    path.chmod(mode)


def _body(policy: PolicyDocument, reason: str) -> bytes:
    from eruca.contract.policies import PolicyPut

    return PolicyPut(policy=policy, reason=reason).model_dump_json(by_alias=True).encode()
