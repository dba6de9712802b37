"""Callers and their sessions: bounded in number and in time.

A session's key is in the memory of this process, and nowhere else: the browser has a random number.
So a stop of the console ends all sessions. Each session has a client of its own, with its key, and
a cache of its own. Thus nobody sees an answer that was given to another caller.

A caller without a session calls as nobody. A console with rules never calls for such a caller, and
one without rules has no credentials of its own (``settings.py``). So nobody calls as the console.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from eruca import ApiKey, AsyncClient, BearerTokens, Token
from eruca.contract.errors import ErucaError, UnauthenticatedError
from eruca.core.credentials import refresh_after_seconds
from eruca_chassis.admission.gate import Gate
from eruca_console.cluster.brokers import KnownBrokers
from eruca_console.cluster.cache import AnswerCache
from eruca_console.cluster.reading import Reading
from eruca_console.core.busy_time import BusyTime
from eruca_console.sessions.code_flow import CodeFlow, IssuedTokens
from eruca_console.settings import ConsoleSettings

_TOKEN_SIZE: Final = 32  # bytes


SHOWN_COUNT_MAX: Final = 32  # texts of about 100 KiB that open pages of one caller share


@dataclass(eq=False, slots=True)
class Caller:
    """Somebody who looks at pages.

    Attributes:
        name: The principal, or the key's beginning; None: nobody.
        reading: Asks the cluster as this caller, and remembers recent answers.
        csrf_token: Proves that a form is from a page of this console.
        session_id: The session's; None: there is none.
        shown: What its open pages show, for those that show the same.
    """

    name: str | None
    reading: Reading
    csrf_token: str
    session_id: str | None = None
    shown: AnswerCache = field(
        default_factory=lambda: AnswerCache(count_max=SHOWN_COUNT_MAX), repr=False
    )
    _secret: str = field(default="", repr=False)
    _keeper: asyncio.Task[None] | None = field(default=None, repr=False)
    _began_at: float = 0.0
    _used_at: float = 0.0


class Callers:
    """All callers.

    Args:
        settings: The console's.
        name_servers: Their URLs.
        gate: The console's own gate, which knows keys; None: only the cluster does.
        now: Returns monotonic seconds.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        name_servers: Sequence[str],
        gate: Gate | None,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._settings = settings
        self._name_servers = list(name_servers)
        self._gate = gate
        self._now = now
        self._sessions: dict[str, Caller] = {}  # the one that was used last is the last
        self._known = KnownBrokers()
        self._closing: set[asyncio.Task[None]] = set()
        client = settings.code_client()
        self.code_flow = None if client is None else CodeFlow(client)
        self.busy = BusyTime(now)  # of the cluster, for all callers
        guest = Reading(self._client(None), self._known, self.busy)
        self._guest = Caller(None, guest, secrets.token_urlsafe(_TOKEN_SIZE))

    @property
    def count(self) -> int:
        """The number of sessions."""
        return len(self._sessions)

    @property
    def needs_login(self) -> bool:
        """True if nobody may see a page without a session."""
        return self._gate is not None

    @property
    def guest(self) -> Caller:
        """The caller without a session."""
        return self._guest

    def of(self, session_id: str | None) -> Caller:
        """Return the caller with a session; the guest, if it has ended or never was.

        A session whose key is no longer valid ends here.
        """
        caller = self._sessions.get(session_id or "")
        if caller is None:
            return self._guest
        if self._is_over(caller) or not self._is_known(caller):
            self.end(caller)
            return self._guest
        caller._used_at = self._now()
        assert caller.session_id is not None
        self._sessions[caller.session_id] = self._sessions.pop(caller.session_id)
        return caller

    def is_over(self, caller: Caller) -> bool:
        """Return whether a caller whose page is open would not get it any more."""
        if caller.session_id is None:
            return self.needs_login
        return (
            caller.session_id not in self._sessions
            or self._is_over(caller)
            or not self._is_known(caller)
        )

    async def begin(self, secret: str, tokens: IssuedTokens | None = None) -> Caller:
        """Return the caller of a new session with an API key or a token.

        Args:
            secret: The key or the token.
            tokens: The issuer's, which are renewed while the session lasts; None: somebody has
                typed the secret.

        Raises:
            ValidationError: It has characters that no key has.
            UnauthenticatedError: The key is not valid.
            ErucaError: The cluster does not answer.
        """
        client = self._client(
            ApiKey(secret) if tokens is None else BearerTokens(lambda: Token(caller._secret))
        )
        now = self._now()
        caller = Caller(
            _beginning(secret),
            Reading(client, self._known, self.busy),
            secrets.token_urlsafe(_TOKEN_SIZE),
            secrets.token_urlsafe(_TOKEN_SIZE),
            _secret=secret,
            _began_at=now,
            _used_at=now,
        )
        try:
            if self._gate is not None:
                caller.name = self._gate.authenticate(_headers(secret))[0].name
            else:
                await client.admin.brokers()
        except BaseException:
            await client.close()
            raise
        for other in list(self._sessions.values()):
            if self._is_over(other):
                self.end(other)
        while len(self._sessions) >= self._settings.sessions_max:
            self.end(next(iter(self._sessions.values())))
        assert caller.session_id is not None
        self._sessions[caller.session_id] = caller
        if tokens is not None and tokens.refresh_token is not None and self.code_flow is not None:
            caller._keeper = asyncio.create_task(self._keep(caller, tokens, self.code_flow))
        return caller

    async def _keep(self, caller: Caller, tokens: IssuedTokens, flow: CodeFlow) -> None:
        """Renew the token of a session before it expires, until the issuer refuses."""
        while tokens.refresh_token is not None:
            await asyncio.sleep(refresh_after_seconds(tokens.life_seconds))
            try:
                tokens = await flow.renewed(tokens)
            except UnauthenticatedError:
                return  # the session ends with the token that it has
            except ErucaError:
                # The issuer does not answer: ask again, with less time left.
                tokens = replace(tokens, life_seconds=max(tokens.life_seconds / 4, 1.0))
                continue
            caller._secret = tokens.access_token
            if not self._is_known(caller):
                return  # it has another person's token, or none that is valid here

    def end(self, caller: Caller) -> None:
        """End a session; its client is closed beside."""
        assert caller.session_id is not None
        if self._sessions.pop(caller.session_id, None) is None:
            return
        if caller._keeper is not None:
            caller._keeper.cancel()
        task = asyncio.ensure_future(caller.reading.client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all sessions, and close all clients."""
        for caller in list(self._sessions.values()):
            self.end(caller)
        await asyncio.gather(*self._closing, self._guest.reading.client.close())

    def _client(self, key: ApiKey | BearerTokens | None) -> AsyncClient:
        return AsyncClient(
            self._name_servers,
            network=self._settings.network,
            timeout_seconds=self._settings.request_timeout_seconds,
            credentials=key,
        )

    def _is_over(self, caller: Caller) -> bool:
        now = self._now()
        return (
            now - caller._used_at >= self._settings.session_idle_minutes * 60
            or now - caller._began_at >= self._settings.session_hours_max * 3600
        )

    def _is_known(self, caller: Caller) -> bool:
        if self._gate is None:
            return True
        try:
            name = self._gate.authenticate(_headers(caller._secret))[0].name
        except UnauthenticatedError:
            return False
        return name == caller.name


def _headers(secret: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {secret}".encode()}


def _beginning(secret: str) -> str:
    """Return a key's public beginning, ``eruca_<id>``; another secret shows nothing."""
    parts = secret.split("_")
    return "_".join(parts[:2]) if len(parts) > 2 and parts[0] == "eruca" else "token"
