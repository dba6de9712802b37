"""The door: decide which operations a service answers in its present role.

A service whose instances have roles, of which only one may change anything, sets a door
(:attr:`.readiness.Readiness.door`). Hot requests and ordinary ones pass the same one, after the
guard, and before anything of their body is read. Without a door a service answers every operation
once it is ready.

An instance that does not know everything must not say that something does not exist. So the door
sees how operations fail, too, and may answer with a redirect.

A service that starts refuses everything. When it stops, the door's refusals come before its own: a
redirect to another instance is a better answer than "stopping".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eruca.contract.errors import ErucaError
from eruca_chassis.asgi import Header


class Door(Protocol):
    """Refuses operations, by their ids in the document; its answers change with the role."""

    def refusal(self, operation: str) -> ErucaError | None:
        """Return why *operation* is refused now; None if it is answered."""
        ...

    def failure(self, operation: str, error: ErucaError) -> ErucaError:
        """Return the error to answer instead of *error*, with which *operation* has ended."""
        ...

    def headers(self, operation: str) -> Sequence[Header]:
        """Return headers for an answer of *operation*, which is about to be sent."""
        ...
