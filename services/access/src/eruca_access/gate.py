"""The gate by API keys and rules: the callers of a service, and their rights.

A caller presents an API key: as a bearer token, or as the password of Basic authentication with any
user name. The key's id finds its row, and one SHA-256 proves it. Or it presents a bearer token of
an issuer in the rules (:mod:`.tokens`). Or it presents nothing, and its connection has a client
certificate whose name the rules have. All wrong credentials get the same answer, whatever is
wrong with them.

A refusal depends on the rules and the requested name alone, not on what exists under that name. So
it names the missing right, and still tells nobody which topics there are.

Decisions are cached until the rules change. A cache entry holds as long as no condition of the rule
changes; decisions that depend on an address or on the time are made each time.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from eruca.contract.access import (
    AccessExplanation,
    AccessRule,
    Resource,
    ResourceKind,
    Right,
    StoredKey,
    topic_resource,
)
from eruca.contract.errors import ErucaError, ForbiddenError, UnauthenticatedError
from eruca.contract.policies import AccessKey, AccessStatus
from eruca.core.access.api_keys import presented_key, proves
from eruca.core.access.policy import FOREVER_MS, OUTSIDE_FIX, Policy
from eruca.core.access.quotas import Quotas
from eruca_access.audit.trail import AuditTrail, is_act
from eruca_access.quotas import QuotaBook
from eruca_access.sources import PolicySource, Sourced
from eruca_access.tokens import INVALID, TOKEN_SIZE_MAX, TokenHolder, Tokens
from eruca_chassis.admission.certificates import ClientCertificate
from eruca_chassis.admission.gate import Act, Asked, Caller, Quota, Refusal
from eruca_chassis.admission.needs import Demand

if TYPE_CHECKING:
    from eruca_access.namespaces.naming import RequestNaming

CACHED_MAX: Final = 65_536  # decisions
LAST_USE_SECONDS: Final = 60.0  # by which the last use of a key may be later than is known
_FOREVER: Final = float("inf")
_HEADER_SIZE_MAX: Final = TOKEN_SIZE_MAX + 16  # bytes of credentials; a key has about 65

TOKEN_START: Final = "eyJ"  # of every JSON Web Token: a JSON object's beginning, in base64

_log = structlog.get_logger()


class KeyHolder(NamedTuple):
    """A caller: the principal of a valid API key."""

    name: str
    key_id: str

    @property
    def credential(self) -> str:
        """The name of its credential, for records."""
        return f"key:{self.key_id}"


class CertificateHolder(NamedTuple):
    """A caller: the principal of a client certificate."""

    name: str

    @property
    def credential(self) -> str:
        """The name of its credential, for records."""
        return "certificate"


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision about one demand; see :class:`eruca_chassis.admission.gate.Verdict`."""

    error: ErucaError | None
    good_until: float = _FOREVER
    depends_on_address: bool = False
    rule: AccessRule | None = None


class PolicyGate:
    """Admits callers by the newest policy of a source.

    Args:
        source: Says the rules.
        own_name: The service's own name; only a broker has one.
        service: The service, for audit records.
    """

    def __init__(self, source: PolicySource, own_name: str = "", service: str = "") -> None:
        self.own_name = own_name
        self.version = 0
        self.source = source
        self.refusals: Counter[str] = Counter()
        self._tokens = Tokens()
        self.trail = AuditTrail(service)
        self.quotas = QuotaBook()
        self._last_used: dict[str, float] = {}  # when, by the id of a key; seconds since 1970
        self._started_at = datetime.now(UTC)
        self._in_force: Sourced | None = None
        self._fault_noted: str | None = None  # in the audit
        self._take_newest()

    def _take_newest(self) -> bool:
        newest = self.source.newest
        if newest is None or newest is self._in_force:
            return False
        document = newest.document
        if self._in_force is not None:
            self.trail.rules_changed(self._in_force.document, document)
        self._in_force = newest
        self._policy = Policy(document)
        self._keys: dict[str, StoredKey] = {key.id: key for key in document.keys}
        self._last_used = {key: at for key, at in self._last_used.items() if key in self._keys}
        self._tokens.follow(document.issuers)
        self.quotas.follow(Quotas(document))
        self._cache: dict[tuple[str, tuple[str, ...], Demand], Judged] = {}
        self.version += 1
        return True

    @property
    def in_force(self) -> Sourced | None:
        """The rules that decide; None: there are none yet."""
        return self._in_force

    @property
    def fault(self) -> str | None:
        """The reason why older rules may be in force; None: the newest ones are."""
        return self.source.fault

    def age_seconds(self) -> float:
        """Return the seconds since the rules were the newest ones for sure."""
        return max(time.time() - self.source.confirmed_at, 0)

    def status(self) -> AccessStatus:
        """Return the rules in force, and the keys that they know."""
        in_force = self._in_force
        document = None if in_force is None else in_force.document
        return AccessStatus(
            source=self.source.kind,
            version=None if in_force is None else in_force.version,
            age_seconds=self.age_seconds(),
            fault=self.fault,
            rule_count=0 if document is None else len(document.rules),
            keys=[
                AccessKey(
                    id=key.id,
                    principal=key.principal,
                    expires_at=key.expires_at,
                    last_used_at=self._last_use_of(key.id),
                )
                for key in (() if document is None else document.keys)
            ],
            started_at=self._started_at,
        )

    def _last_use_of(self, key_id: str) -> datetime | None:
        used_at = self._last_used.get(key_id)
        return None if used_at is None else datetime.fromtimestamp(used_at, UTC)

    def incapacity(self) -> ErucaError | None:
        """Return why nobody is admitted: there are no rules yet."""
        return self.source.missing() if self._in_force is None else None

    async def start(self) -> None:
        """Begin to follow the rules."""
        await self.source.start()

    async def stop(self) -> None:
        """Stop following them."""
        await self.source.stop()

    def authenticate(
        self, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None = None
    ) -> tuple[Caller, float]:
        """Return the caller, and the monotonic time until which its credentials are valid.

        A header decides alone, even if it is wrong. Otherwise a caller whose key was revoked
        would go on as somebody else.

        Raises:
            UnauthenticatedError: The request has no valid credentials.
            NotReadyError: There are no rules yet, or no keys of the token's issuer.
        """
        if self._in_force is None and not self._take_newest():
            raise self.source.missing()
        given = headers.get(b"authorization")
        if given is None and certificate is not None:
            return self._certified(certificate)
        if given is None:
            raise UnauthenticatedError("the request has no Authorization header")
        text = _secret_text(given)
        if text is None:
            raise UnauthenticatedError(INVALID)
        if text.startswith(TOKEN_START):
            return self._tokens.holder_of(text)
        presented = presented_key(text)
        key = None if presented is None else self._keys.get(presented.id)
        if presented is None or key is None or not proves(presented, key.sha256):
            raise UnauthenticatedError(INVALID)
        self._last_used[key.id] = time.time()
        if key.expires_at is None:
            return KeyHolder(key.principal, key.id), _FOREVER
        left_seconds = key.expires_at.timestamp() - time.time()
        if left_seconds <= 0:
            raise UnauthenticatedError(f"the API key {key.id} has expired")
        return KeyHolder(key.principal, key.id), time.monotonic() + left_seconds

    @property
    def has_namings(self) -> bool:
        """True if some principals have a namespace."""
        return self._in_force is not None and bool(self._policy.namespaces)

    def naming_of(
        self, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None = None
    ) -> RequestNaming | None:
        """Return the names of a request whose caller has a namespace; None: it has none.

        A caller in several namespaces has none here, and no rights either.
        """
        from eruca_access.namespaces.naming import RequestNaming  # few services need it

        try:
            caller, _ = self.authenticate(headers, certificate)
        except ErucaError:
            return None  # it is refused
        namespaces = self._policy.namespaces.of(caller.name, _roles_of(caller))
        return RequestNaming(namespaces[0]) if len(namespaces) == 1 else None

    def _certified(self, certificate: ClientCertificate) -> tuple[Caller, float]:
        """Return the caller with a verified certificate, as :meth:`authenticate` does.

        An authority signs certificates for many purposes, so a name that no rule and no role has
        is nobody here.
        """
        principal = f"cert:{certificate.name}"
        if not self._policy.has(principal):
            raise UnauthenticatedError(
                f"no rule and no role names {principal}",
                fix="name it in a rule or in a role, or send an API key",
            )
        left_seconds = certificate.expires_at - time.time()
        if left_seconds <= 0:
            raise UnauthenticatedError(f"the certificate of {principal} has expired")
        return CertificateHolder(principal), time.monotonic() + left_seconds

    def judge(self, caller: Caller, demand: Demand, address: str) -> Judged:
        """Decide about one demand of *caller*."""
        roles = _roles_of(caller)
        cached = self._cache.get((caller.name, roles, demand))
        if cached is not None:
            return cached
        judged = self._judge(caller.name, roles, demand, address)
        if not judged.depends_on_address and judged.good_until == _FOREVER:
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            self._cache[caller.name, roles, demand] = judged
        return judged

    def _judge(
        self, principal: str, roles: tuple[str, ...], demand: Demand, address: str
    ) -> Judged:
        resource = resource_of(demand)
        now_ms = time.time_ns() // 1_000_000
        depends_on_address, denied_until_ms = False, FOREVER_MS
        denial: AccessRule | None = None
        for right in demand.rights:
            decision = self._policy.decide(
                principal, Right(right), resource, address=address, now_ms=now_ms, roles=roles
            )
            depends_on_address |= decision.depends_on_address
            if decision.allowed:
                good_until = _monotonic(decision.good_until_ms, now_ms)
                return Judged(None, good_until, depends_on_address, decision.rule)
            denied_until_ms = min(denied_until_ms, decision.good_until_ms)
            denial = denial or decision.rule
        error = ForbiddenError.of(demand.rights, str(resource), principal)
        if self._policy.is_outside(principal, resource, roles=roles):
            reason = self._policy.outside(principal, resource, roles=roles)
            error = ForbiddenError(reason, fix=OUTSIDE_FIX)
        return Judged(error, _monotonic(denied_until_ms, now_ms), depends_on_address, denial)

    def explain(
        self,
        principal: str,
        right: Right,
        resource: Resource,
        address: str,
        *,
        caller: Caller | None = None,
    ) -> AccessExplanation:
        """Say whether a principal has a right, and by which rule.

        If *caller* asks about itself, the roles of its token count.
        """
        now_ms = time.time_ns() // 1_000_000
        roles = _roles_of(caller) if caller is not None and caller.name == principal else ()
        return self._policy.explain(
            principal, right, resource, address=address, now_ms=now_ms, roles=roles
        )

    @property
    def issuer_faults(self) -> Mapping[str, str | None]:
        """The reason why an issuer's keys could not be fetched the last time, by its name."""
        return self._tokens.faults

    async def fetch_keys(self) -> None:
        """Fetch keys of issuers that are due; tokens of keys that are gone are no longer valid."""
        if await self._tokens.fetch():
            self.version += 1

    def quota_of(self, caller: Caller) -> Quota | None:
        """Return the quota of *caller*; None: it may use all."""
        version = self.quotas.version
        roles = _roles_of(caller)
        meter = self.quotas.meter_of(caller.name, roles)
        if self.quotas.version != version:
            self.version += 1  # a known head may have a meter that is forgotten
        return meter

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal, and record it."""
        self.refusals[refusal.error.code] += 1
        self.trail.refused(refusal)

    def used(self, caller: Caller, asked: Asked) -> float:
        """Record the use of credentials; return the monotonic time of the next one to record.

        A known head is decided again a minute after this, so that the last use of its key is known
        to the minute.
        """
        return min(self.trail.used(caller, asked), time.monotonic() + LAST_USE_SECONDS)

    def is_act(self, demand: Demand) -> bool:
        """Return whether using the right that *demand* asks for is an act."""
        return is_act(demand)

    def acted(self, act: Act) -> None:
        """Record an act."""
        verdicts = (self.judge(act.caller, demand, act.asked.address) for demand in act.demands)
        self.trail.acted(act, [v.rule for v in verdicts if v.rule is not None])

    async def refresh(self) -> bool:
        """Take over changed rules; return whether there are some."""
        await self.source.refresh()
        if self.fault is not None and self.fault != self._fault_noted:
            self.trail.rules_stale(self.fault)
        self._fault_noted = self.fault
        if not self._take_newest():
            return False
        assert self._in_force is not None
        document = self._in_force.document
        _log.info(
            "rules changed",
            version=self._in_force.version,
            rules=len(document.rules),
            keys=len(document.keys),
        )
        return True


def _roles_of(caller: Caller) -> tuple[str, ...]:
    """Return the roles that the caller's credentials give it."""
    return caller.roles if isinstance(caller, TokenHolder) else ()


def resource_of(demand: Demand) -> Resource:
    """Return the resource of a demand; a topic's messages may belong to a group or to the log."""
    kind = ResourceKind(demand.kind)
    return (
        topic_resource(demand.name) if kind is ResourceKind.TOPIC else Resource(kind, demand.name)
    )


def _monotonic(at_ms: int, now_ms: int) -> float:
    """Return a time of the wall clock as one of the monotonic clock."""
    return _FOREVER if at_ms == FOREVER_MS else time.monotonic() + (at_ms - now_ms) / 1000


def _secret_text(authorization: bytes) -> str | None:
    """Return the key or the token in an Authorization header; None if there is none."""
    if len(authorization) > _HEADER_SIZE_MAX:
        return None
    scheme, _, rest = authorization.strip().partition(b" ")
    rest = rest.strip()
    try:
        match scheme.lower():
            case b"bearer":
                return rest.decode("ascii")
            case b"basic":
                pair = base64.b64decode(rest, validate=True).decode("ascii")
                return pair.partition(":")[2]
            case _:
                return None
    except (UnicodeDecodeError, binascii.Error):
        return None
