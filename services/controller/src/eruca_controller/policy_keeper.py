"""The keeper of the policy: read it, wait for its change, and change it under a condition.

The policy is in the store, so any number of controllers agree. Each looks for a new version: at
once after a notice, and periodically. A new version wakes held requests, and is in force at this
controller's own gate.

A controller without rules of its own keeps no policy: everybody could change it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from eruca.contract.access import ROLE_PREFIX, PolicyDocument, Resource, ResourceKind, Right
from eruca.contract.errors import (
    ArbiterUnavailableError,
    ConflictError,
    NotFoundError,
    PreconditionFailedError,
)
from eruca.contract.issuers import TokenIssuer
from eruca.contract.policies import PolicyDifferences, PolicyPut
from eruca.core.access.differences import differences
from eruca.core.access.policy import Policy
from eruca_access.kept_policy import KeptPolicy
from eruca_access.kept_source import OlderPolicyError, OwnSource
from eruca_chassis.admission.held import HeldPlace, HeldPlaces, Release, Waking
from eruca_chassis.asgi import Receive
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_controller.core.conditions import Condition
from eruca_controller.core.policies import PolicyRow, is_result_of, next_row
from eruca_controller.store.policies import PolicyStore

BOOTSTRAP: Final = "ERUCA_AUTH_FILE"  # the author of the first policy
_TOKENS: Final = "oidc:"  # begins the principals of tokens
_BY_KEY: Final = ("user:", "service:")  # begin those of keys
_NO_POLICY: Final = PolicyDocument()
_FIX_FIRST: Final = "put it with If-None-Match: *; or eruca auth apply FILE"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Author:
    """Somebody who changes the policy.

    Attributes:
        name: The principal.
        address: The client's IP address.
        roles: Roles that its credentials give it, each as ``role:NAME``.
    """

    name: str
    address: str
    roles: tuple[str, ...] = ()


class PolicyKeeper:
    """Answers requests for the policy.

    Args:
        store: Holds its versions; None: the controller's store cannot.
        source: The rules of this controller's own gate, if they are those of the store.
        held: Limits held requests.
        clock: The controller's clock.
        is_closed: Whether this controller has a gate.
        first: The first policy, which is stored if there is none; None: there is no such file.
        poll_seconds: Returns the time between two looks at the store.
    """

    def __init__(
        self,
        store: PolicyStore | None,
        source: OwnSource | None,
        held: HeldPlaces,
        clock: Clock,
        *,
        is_closed: bool,
        first: PolicyDocument | None,
        poll_seconds: Callable[[], float],
    ) -> None:
        self._store = store
        self._source = source
        self._held = held
        self._clock = clock
        self._is_closed = is_closed
        self._first = first
        self._poll_seconds = poll_seconds
        self._version: str | None = None  # the newest one, as of the last look
        self._waiting: set[HeldPlace] = set()
        self._waking = Waking()
        self._loop = BackgroundLoop("policy", self._step, period_seconds=1, rest_seconds=0.005)

    def start(self) -> None:
        """Start looking for new versions."""
        if self._store is not None and self._is_closed:
            self._loop.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._loop.stop()

    def wake(self) -> None:
        """Look now: something has changed, or may have."""
        self._loop.wake()

    async def get(
        self, known: frozenset[str] | None, wait_seconds: float, receive: Receive
    ) -> PolicyRow:
        """Return the newest version; wait while the client knows it, up to *wait_seconds*.

        Raises:
            NotFoundError: There is no policy.
            ConflictError: This controller keeps none.
            OverloadedError: Too many requests are held.
            ArbiterUnavailableError: The store is out of reach.
        """
        store = self._usable()
        row = await store.newest()
        if wait_seconds > 0 and row is not None and _is_known(row, known):
            row = await self._changed(store, row, known, wait_seconds, receive)
        if row is None:
            raise NotFoundError("there is no policy yet", fix=_FIX_FIRST)
        return row

    async def _changed(
        self,
        store: PolicyStore,
        row: PolicyRow | None,
        known: frozenset[str] | None,
        wait_seconds: float,
        receive: Receive,
    ) -> PolicyRow | None:
        ends_at = self._clock.monotonic() + wait_seconds
        with self._held.place() as place:
            self._waiting.add(place)
            self._loop.wake()  # it may have changed since it was read
            try:
                while row is not None and _is_known(row, known):
                    released = await place.wait(ends_at - self._clock.monotonic(), receive)
                    row = await store.newest()
                    if released is not Release.NEWS:
                        break
            finally:
                self._waiting.discard(place)
        return row

    async def put(
        self, condition: Condition, change: PolicyPut, author: Author, *, above: int
    ) -> PolicyRow:
        """Replace the policy under *condition*; return the new version.

        Raises:
            PreconditionFailedError: The current version does not meet the condition.
            ConflictError: The author could not change the policy any more; or this controller
                keeps none.
            ArbiterUnavailableError: The store is out of reach; the change may have been made.
        """
        store = self._usable()
        before = await store.newest()
        if _is_done(before, condition, change, author):
            assert before is not None
            return before
        _check(condition, before)
        if _locks_out(change.policy, author, self._clock.now_ms()):
            raise ConflictError(
                f"under these rules {author.name} could not change them any more",
                fix="grant administer on cluster to yourself, and keep a key of yours; or let "
                "another administrator make the change",
            )
        old = _NO_POLICY if before is None else before.policy
        row = next_row(
            before,
            change.policy,
            await self._differences(old, change.policy),
            by=author.name,
            reason=change.reason,
            changed_at=self._now(),
            above=above,
        )
        if not await store.swap(None if before is None else before.version, row):
            current = await store.newest()
            if current is not None and _is_done(current, condition, change, author):
                return current
            raise _another(current)
        self._loop.wake()
        _log.info(
            "policy changed",
            version=row.version,
            by=row.by,
            reason=row.reason,
            rights=row.differences.right_count,
        )
        return row

    async def preview(
        self, policy: PolicyDocument, author: Author
    ) -> tuple[str | None, bool, PolicyDifferences]:
        """Return the current version, whether a change locks its author out, and its effect.

        Raises:
            ConflictError: This controller keeps no policy.
            ArbiterUnavailableError: The store is out of reach.
        """
        before = await self._usable().newest()
        effect = await self._differences(_NO_POLICY if before is None else before.policy, policy)
        version = None if before is None else before.version
        return version, _locks_out(policy, author, self._clock.now_ms()), effect

    async def history(self, *, before: int | None, count_max: int) -> list[PolicyRow]:
        """Return versions, the newest first; *before* is a number, exclusive.

        Raises:
            ConflictError: This controller keeps no policy.
            ArbiterUnavailableError: The store is out of reach.
        """
        return await self._usable().history(before=before, count_max=count_max)

    async def version(self, number: int) -> PolicyRow:
        """Return the version of this number.

        Raises:
            NotFoundError: There is none; numbers may have gaps after a restored store.
            ConflictError: This controller keeps no policy.
            ArbiterUnavailableError: The store is out of reach.
        """
        rows = await self._usable().history(before=number + 1, count_max=1)
        if not rows or rows[0].number != number:
            raise NotFoundError(
                f"the policy has no version {number}", fix="list the versions of the history"
            )
        return rows[0]

    def _usable(self) -> PolicyStore:
        if not self._is_closed:
            raise ConflictError(
                "this controller has no rules itself, so that everybody could change the policy",
                fix="start all controllers with ERUCA_AUTH=controller, and the first one with the "
                "first rules in ERUCA_AUTH_FILE; `eruca auth init DIR` makes such a file",
            )
        if self._store is None:
            raise ConflictError(
                "this controller keeps its rows in Kubernetes, where no policy is kept",
                fix="set ERUCA_CONTROLLER_STORE to postgres, etcd or file; or use the same "
                "ERUCA_AUTH_FILE at all services",
            )
        return self._store

    async def _differences(
        self, before: PolicyDocument, after: PolicyDocument
    ) -> PolicyDifferences:
        now_ms = self._clock.now_ms()
        return await asyncio.to_thread(differences, before, after, now_ms=now_ms)

    async def _step(self) -> float:
        """Look once: take over a new version, and wake the requests that wait for it."""
        assert self._store is not None
        try:
            version = await self._store.newest_version()
            if version is None and self._source is not None and self._source.newest is not None:
                raise _emptied(self._source)
            if version is None and self._first is not None:
                await self._bootstrap(self._store, self._first)
                version = await self._store.newest_version()
            if version is not None and version != self._version:
                await self._take(self._store)
        except ArbiterUnavailableError as error:
            self._fail(error.detail)
            return self._poll_seconds()
        except OlderPolicyError as error:
            self._fail(str(error))
            return self._poll_seconds()
        if self._source is not None and version is not None:
            self._source.confirm()
        return self._poll_seconds()

    async def _bootstrap(self, store: PolicyStore, document: PolicyDocument) -> None:
        """Store the first policy; another controller may do the same."""
        row = next_row(
            None,
            document,
            await self._differences(_NO_POLICY, document),
            by=BOOTSTRAP,
            reason="the first policy, as a controller found it in its file",
            changed_at=self._now(),
        )
        if await store.swap(None, row):
            _log.info("first policy stored", version=row.version)

    async def _take(self, store: PolicyStore) -> None:
        row = await store.newest()
        assert row is not None
        if self._source is not None:
            await self._source.take(KeptPolicy(row.number, row.version, row.policy))
        self._version = row.version
        self._waking.wake(list(self._waiting))

    def _fail(self, fault: str) -> None:
        if self._source is not None:
            self._source.fail(fault)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)


def _emptied(source: OwnSource) -> OlderPolicyError:
    assert source.newest is not None
    return OlderPolicyError(
        "the controllers' store has no rules, and this controller has version "
        f"{source.newest.version}: it is another store, or an emptied one; "
        f"{source.how_to_restore()}"
    )


def _is_known(row: PolicyRow, known: frozenset[str] | None) -> bool:
    return known is None or row.version in known


def _is_done(
    current: PolicyRow | None, condition: Condition, change: PolicyPut, author: Author
) -> bool:
    """Return whether the current version is the result of this very request, repeated."""
    if current is None:
        return False
    follows = (
        current.previous is None
        if condition.creates
        else condition.versions is not None and current.previous in condition.versions
    )
    return follows and is_result_of(current, change.policy, by=author.name, reason=change.reason)


def _check(condition: Condition, current: PolicyRow | None) -> None:
    if not condition.allows(None if current is None else current.version):
        raise _another(current)


def _another(current: PolicyRow | None) -> PreconditionFailedError:
    if current is None:
        return PreconditionFailedError("there is no policy yet", fix=_FIX_FIRST)
    return PreconditionFailedError(
        f"the policy has version {current.version}",
        fix=f'read it again, decide again, and send If-Match: "{current.version}"',
    )


def _locks_out(policy: PolicyDocument, author: Author, now_ms: int) -> bool:
    """Return whether the author could not change the policy under *policy* any more."""
    decision = Policy(policy).decide(
        author.name,
        Right.ADMINISTER,
        Resource(ResourceKind.CLUSTER, ""),
        address=author.address,
        now_ms=now_ms,
        roles=_roles_kept(policy, author),
    )
    if not decision.allowed:
        return True
    if author.name.startswith(_TOKENS):
        return _issuer_of(policy, author) is None
    return author.name.startswith(_BY_KEY) and not any(
        key.principal == author.name
        and (key.expires_at is None or key.expires_at.timestamp() * 1000 > now_ms)
        for key in policy.keys
    )


def _issuer_of(policy: PolicyDocument, author: Author) -> TokenIssuer | None:
    """Return the issuer of the author's token; None: its tokens are not accepted."""
    name = author.name.removeprefix(_TOKENS).partition("/")[0]
    return next((issuer for issuer in policy.issuers if issuer.name == name), None)


def _roles_kept(policy: PolicyDocument, author: Author) -> tuple[str, ...]:
    """Return the roles that the author's token can still give under *policy*."""
    issuer = _issuer_of(policy, author)
    given = () if issuer is None else {ROLE_PREFIX + role for role in issuer.roles.values()}
    return tuple(role for role in author.roles if role in given)
