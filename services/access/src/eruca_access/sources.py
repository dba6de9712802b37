"""Sources of the rules: a file, the controllers, or a controller's own store.

A gate looks at its source about twice a second. A source that cannot say anything new keeps what it
has, and says why: nobody loses rights, or gets them, because something is out of reach.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import structlog

from eruca.contract.access import PolicyDocument
from eruca.contract.errors import NotReadyError
from eruca.core.access.policy_text import InvalidPolicyError
from eruca_access.policy_file import read_policy
from eruca_chassis.files.file_states import FileState, state_of

_HASH_SIZE: Final = 16  # hex digits: 64 bits
SourceKind = Literal["file", "controller"]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Sourced:
    """Rules as a source gives them.

    Attributes:
        document: The rules, roles and keys.
        version: The text that identifies them at the controllers, or a hash of a file's rules.
    """

    document: PolicyDocument
    version: str


class PolicySource(Protocol):
    """A place from which a service gets its rules."""

    @property
    def kind(self) -> SourceKind:
        """The kind of the place."""
        ...

    @property
    def newest(self) -> Sourced | None:
        """The newest rules that may be in force; None: there have never been any."""
        ...

    @property
    def fault(self) -> str | None:
        """The reason why newer rules may exist that are not in force; None: there is none."""
        ...

    @property
    def confirmed_at(self) -> float:
        """The time, in seconds since 1970, at which the rules were the newest ones for sure."""
        ...

    def missing(self) -> NotReadyError:
        """Return the error for requests while there are no rules."""
        ...

    async def start(self) -> None:
        """Begin to follow the rules."""
        ...

    async def stop(self) -> None:
        """Stop following them."""
        ...

    async def refresh(self) -> None:
        """Look for changed rules, if the source does not follow them by itself."""
        ...


class FileSource:
    """The rules in a file, which is read again when it changes.

    Args:
        path: The file.

    Raises:
        InvalidPolicyError: The file is no policy.
    """

    kind: SourceKind = "file"

    def __init__(self, path: Path) -> None:
        self.fault: str | None = None
        self._path = path
        self._state: FileState | None = state_of(path)
        self.newest: Sourced | None = _of_file(read_policy(path))

    @property
    def confirmed_at(self) -> float:
        """The time of the last look, which is always a moment ago."""
        return time.time()

    def missing(self) -> NotReadyError:
        """Return the error for requests while there are no rules, which does not happen."""
        return NotReadyError("the file of rules has not been read")

    async def start(self) -> None:
        """Do nothing: the file is looked at by :meth:`refresh`."""

    async def stop(self) -> None:
        """Do nothing."""

    async def refresh(self) -> None:
        """Read the file if it has changed."""
        state = state_of(self._path)
        if state == self._state:
            return
        self._state = state
        try:
            document = await asyncio.to_thread(read_policy, self._path)
        except InvalidPolicyError as error:
            self.fault = str(error)
            _log.error("rules not changed: the file has a mistake", reason=self.fault)
            return
        self.fault = None
        self.newest = _of_file(document)


def _of_file(document: PolicyDocument) -> Sourced:
    content = json.dumps(document.model_dump(mode="json", by_alias=True), sort_keys=True)
    return Sourced(document, hashlib.sha256(content.encode()).hexdigest()[:_HASH_SIZE])
