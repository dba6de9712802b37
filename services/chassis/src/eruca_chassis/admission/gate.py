"""The gate: who is the caller, and may it do this? Both entrances of a service ask it.

It comes after the guard, and before anything of a body is read. A service without a gate lets
everybody do everything, and pays nothing for it.

The decision about a head is an :class:`Admission`, kept beside the head. It holds while two numbers
do: the version of the rules, and the time until which nothing of it expires. So a known head costs
two comparisons.

An endpoint that finds resources' names in a body asks by the request's :class:`Access`, which also
remembers the demands. A request that waits is decided again when the rules change or something
expires (:mod:`.under_way`; :meth:`eruca_chassis.connections.exchange.Exchange.recheck`).

The gate notes refusals, acts with the status of their answers, and the use of credentials. It may
keep records of them.

This module knows callers, rights and resources as texts; their meaning is the gate's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any, Final, NamedTuple, Protocol

from fastapi import Depends, Request
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca.contract.errors import ErucaError, ForbiddenError, UnauthenticatedError
from eruca_chassis.admission.certificates import ClientCertificate
from eruca_chassis.admission.needs import Demand, Needs

ACCESS_KEY: Final = "eruca.access"  # in a request's scope
CONNECTION_KEY: Final = "eruca.connection"  # in a request's scope, for quotas
CERTIFICATE_KEY: Final = "eruca.certificate"  # in a request's scope: the client's, if it has one


class Caller(Protocol):
    """Somebody with valid credentials."""

    @property
    def name(self) -> str:
        """The principal."""
        ...

    @property
    def credential(self) -> str:
        """The name of its credential, for records; no secret."""
        ...


class Verdict(Protocol):
    """A decision about one demand."""

    @property
    def error(self) -> ErucaError | None:
        """The refusal; None: it is allowed."""
        ...

    @property
    def good_until(self) -> float:
        """The monotonic time until which the verdict holds."""
        ...

    @property
    def depends_on_address(self) -> bool:
        """True if another address may get another verdict."""
        ...

    @property
    def rule(self) -> object | None:
        """The rule that decides, as a text says it; None: none applies."""
        ...


class Connection(Protocol):
    """A client's connection."""

    def counted_by(self, quota: Quota) -> None:
        """Tell *quota* once the connection is closed."""
        ...


class Quota(Protocol):
    """The limits of a caller at this service, and its use of them; times are monotonic."""

    def begin(self, now: float, body_size: int, connection: Connection | None = None) -> None:
        """Admit a request whose body has the announced size; 0: unknown, or there is none.

        Raises:
            QuotaExceededError: A limit is reached; nothing was taken.
        """
        ...

    def received(self, now: float, size: int) -> None:
        """Add bytes of a body whose size was not announced."""
        ...

    def sent(self, now: float, size: int) -> None:
        """Add bytes of an answer."""
        ...

    def end(self) -> None:
        """End a request that has begun."""
        ...

    def lost(self, connection: Connection) -> None:
        """Forget a connection, which is closed."""
        ...

    def hold(self, budget: str, maximum: int, amount: int) -> None:
        """Take *amount* of the caller's share of a budget that has this maximum.

        Raises:
            QuotaExceededError: It does not fit; nothing was taken.
        """
        ...

    def give(self, budget: str, amount: int) -> None:
        """Give back *amount* of a budget."""
        ...


class Naming(Protocol):
    """The names of one request, whose caller has other ones than the service, and of its answer."""

    def refusal(self, operation: str) -> ErucaError | None:
        """Return why the caller may not use an operation; None: its names can be changed."""
        ...

    def parameter(self, name: str, value: str) -> str | None:
        """Return the service's name in a parameter of path or query; None: there is no name."""
        ...

    def body(self, media_type: str, body: bytes) -> bytes:
        """Return the request's body with the service's names."""
        ...

    def answer(self, media_type: str, body: bytes) -> bytes:
        """Return the answer's body with the caller's names.

        Raises:
            ErucaError: It has a name for which the caller has none.
        """
        ...

    def problem(self, body: bytes) -> bytes:
        """Return a problem document with the caller's names."""
        ...


class Gate(Protocol):
    """Decides by rules."""

    @property
    def version(self) -> int:
        """The number of the present rules; each change has another one."""
        ...

    @property
    def own_name(self) -> str:
        """The service's own name, on which some operations need a right."""
        ...

    def authenticate(
        self, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None = None
    ) -> tuple[Caller, float]:
        """Return the caller, and the monotonic time until which its credentials are valid.

        Credentials in the headers count alone. The certificate counts if there are none.

        Raises:
            UnauthenticatedError: The request has no valid credentials.
        """
        ...

    @property
    def has_namings(self) -> bool:
        """True if some callers have other names than the service."""
        ...

    def naming_of(
        self, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None = None
    ) -> Naming | None:
        """Return the names of a request; None: they are the service's, or nobody's."""
        ...

    def judge(self, caller: Caller, demand: Demand, address: str) -> Verdict:
        """Decide about one demand of *caller*, who calls from *address*."""
        ...

    def quota_of(self, caller: Caller) -> Quota | None:
        """Return the quota of *caller*; None: it may use all."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal that is about to be answered."""
        ...

    def used(self, caller: Caller, asked: Asked) -> float:
        """Note the use of credentials; return the monotonic time of the next use to note."""
        ...

    def is_act(self, demand: Demand) -> bool:
        """Return whether using the right that *demand* asks for is an act."""
        ...

    def acted(self, act: Act) -> None:
        """Note an act that has been answered."""
        ...

    @property
    def refusals(self) -> Mapping[str, int]:
        """The counts of refusals, by the codes of their problems."""
        ...

    @property
    def fault(self) -> str | None:
        """The reason why older rules may still be in force; None: the newest ones are."""
        ...

    def age_seconds(self) -> float:
        """Return the seconds since the rules were the newest ones for sure."""
        ...

    def incapacity(self) -> ErucaError | None:
        """Return why nobody is admitted; None: the rules decide."""
        ...

    async def start(self) -> None:
        """Begin to follow the rules; called before the service starts."""
        ...

    async def stop(self) -> None:
        """Stop following them."""
        ...

    @property
    def issuer_faults(self) -> Mapping[str, str | None]:
        """The reason why a token issuer's keys could not be fetched the last time, by its name."""
        ...

    async def refresh(self) -> bool:
        """Take over changed rules; return whether there are some. Called about twice a second."""
        ...

    async def fetch_keys(self) -> None:
        """Fetch keys of token issuers that are due. Called about twice a second, may take long."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """A caller's admission by a head.

    Attributes:
        gate: Decided it.
        caller: The caller.
        version: The rules' version by which it was decided.
        good_until: The monotonic time from which it must be decided again.
        quota: The caller's; None: it has none.
    """

    gate: Gate
    caller: Caller
    version: int
    good_until: float
    quota: Quota | None = None

    def holds(self, now: float) -> bool:
        """Return whether it is still valid at a monotonic time."""
        return self.version == self.gate.version and now < self.good_until

    def until(self, verdict: Verdict) -> Admission:
        """Return the admission that holds only while *verdict* does, too."""
        return replace(self, good_until=_earlier(self.good_until, verdict))


class Asked(NamedTuple):
    """A request's head, as far as the gate needs it.

    Attributes:
        needs: What the operation needs.
        parameters: The path's, decoded.
        query: As sent.
        headers: Names in lower case.
        address: The client's.
        operation: Its id in the document.
        request_id: The request's.
        certificate: The client's, verified; None: it has none.
    """

    needs: Needs
    parameters: Mapping[str, str]
    query: bytes
    headers: Mapping[bytes, bytes]
    address: str
    operation: str = ""
    request_id: str = ""
    certificate: ClientCertificate | None = None


class Refusal(NamedTuple):
    """A refused request.

    Attributes:
        asked: Its head.
        error: The answer.
        caller: None: unknown.
        demand: The demand that was refused; None: the credentials were.
        verdict: The decision about the demand.
    """

    asked: Asked
    error: ErucaError
    caller: Caller | None = None
    demand: Demand | None = None
    verdict: Verdict | None = None


class Act(NamedTuple):
    """The use of a right that the gate keeps records of.

    Attributes:
        asked: The request's head.
        caller: Who has done it.
        demands: The rights.
        status: Of the answer.
    """

    asked: Asked
    caller: Caller
    demands: tuple[Demand, ...]
    status: int


def admit(gate: Gate, asked: Asked, more: Iterable[Demand] = ()) -> Admission | None:
    """Admit a request by its head; None: the operation is open to everybody.

    Args:
        gate: Decides.
        asked: The head.
        more: Demands that the endpoint has made since.

    Raises:
        UnauthenticatedError: The request has no valid credentials.
        ForbiddenError: A right is missing.
    """
    needs = asked.needs
    if needs.is_public:
        return None
    version = gate.version
    try:
        caller, good_until = gate.authenticate(asked.headers, asked.certificate)
    except ErucaError as error:
        gate.refused(Refusal(asked, error))
        raise
    good_until = min(good_until, gate.used(caller, asked))
    for demand in (*needs.demands(asked.parameters, asked.query, gate.own_name), *more):
        verdict = _judged(gate, caller, demand, asked)
        good_until = _earlier(good_until, verdict)
    return Admission(gate, caller, version, good_until, gate.quota_of(caller))


def _judged(gate: Gate, caller: Caller, demand: Demand, asked: Asked) -> Verdict:
    """Return the verdict that allows *demand*; tell the gate of a refusal, and raise it."""
    verdict = gate.judge(caller, demand, asked.address)
    if verdict.error is not None:
        gate.refused(Refusal(asked, verdict.error, caller, demand, verdict))
        raise verdict.error
    return verdict


class AccessMetrics(Collector):
    """The metrics of a service's gate, or of its missing one.

    Args:
        gate: The gate; None: everybody may do everything.
    """

    def __init__(self, gate: Gate | None) -> None:
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, for Prometheus."""
        gate = self._gate
        yield GaugeMetricFamily(
            "eruca_access_closed",
            "1 if rules say who may do what; 0: everybody may do everything",
            value=int(gate is not None),
        )
        yield GaugeMetricFamily(
            "eruca_access_rules_stale",
            "1 if older rules may be in force: the newest ones have a mistake, or are out of reach",
            value=int(gate is not None and gate.fault is not None),
        )
        issuers = GaugeMetricFamily(
            "eruca_access_issuer_unreachable",
            "1 if the last fetch of a token issuer's keys failed, by issuer",
            labels=["issuer"],
        )
        for name, fault in ({} if gate is None else gate.issuer_faults).items():
            issuers.add_metric([name], int(fault is not None))
        yield issuers
        if gate is not None:
            yield GaugeMetricFamily(
                "eruca_access_rules_age_seconds",
                "Seconds since the rules were the newest ones for sure",
                value=gate.age_seconds(),
            )
        refusals = CounterMetricFamily(
            "eruca_access_refusals", "Requests refused by the gate, by reason", labels=["reason"]
        )
        for kind in (UnauthenticatedError, ForbiddenError):
            count = 0 if gate is None else gate.refusals.get(kind.code, 0)
            refusals.add_metric([kind.code], count)
        yield refusals


class Access:
    """The rights of a request's caller, for endpoints.

    Attributes:
        demands: The rights that an endpoint has required so far.
        acts: Those of them whose use is an act.
        admission: Holds as long as the head's demands and these do; None without a gate.
    """

    __slots__ = ("_address", "_asked", "_is_told", "acts", "admission", "demands")

    def __init__(
        self,
        admission: Admission | None = None,
        address: str = "",
        asked: Callable[[], Asked] | None = None,
    ) -> None:
        self.admission = admission
        self.demands: list[Demand] = []
        self.acts: list[Demand] = []
        self._address = address
        self._asked = asked  # the request's head; None: there is no gate
        self._is_told = False  # whether the gate knows of the acts

    @property
    def is_open(self) -> bool:
        """True if everybody may do everything, so that there is nothing to filter."""
        return self.admission is None

    @property
    def caller(self) -> Caller | None:
        """The caller; None without a gate."""
        return None if self.admission is None else self.admission.caller

    @property
    def quota(self) -> Quota | None:
        """The caller's quota; None: it has none."""
        return None if self.admission is None else self.admission.quota

    @property
    def name(self) -> str | None:
        """The caller's principal; None without a gate."""
        return None if self.admission is None else self.admission.caller.name

    def require(self, *demands: Demand) -> None:
        """Require rights, on resources that the request names in its body or its query.

        Raises:
            ForbiddenError: The caller lacks one.
        """
        admission = self.admission
        if admission is None:
            return
        assert self._asked is not None, "a gate has admitted a request without a head"
        asked = self._asked()
        for demand in dict.fromkeys(demands):
            verdict = _judged(admission.gate, admission.caller, demand, asked)
            self.demands.append(demand)
            self.admission = admission = admission.until(verdict)
            if admission.gate.is_act(demand):
                self.acts.append(demand)

    def acts_on(self, demand: Demand) -> None:
        """Note an act for which the caller needs no more rights than it has."""
        if self.admission is not None:
            self.acts.append(demand)

    def answered(self, status: int) -> None:
        """Tell the gate of the acts of the request, which has been answered; once."""
        admission = self.admission
        if admission is None or self._is_told:
            return
        assert self._asked is not None, "a gate has admitted a request without a head"
        asked, gate, acts = self._asked(), admission.gate, list(self.acts)
        if asked.needs.is_act:
            named = asked.needs.demands(asked.parameters, asked.query, gate.own_name)
            acts += filter(gate.is_act, named)
        elif not acts:
            return
        self._is_told = True
        gate.acted(Act(asked, admission.caller, tuple(dict.fromkeys(acts)), status))

    def recheck(self, asked: Asked, now: float) -> None:
        """Decide again, about the head and all demands, if the admission no longer holds.

        Raises:
            UnauthenticatedError: The credentials are no longer valid.
            ForbiddenError: A right is missing now.
        """
        admission = self.admission
        if admission is not None and not admission.holds(now):
            self.admission = admit(admission.gate, asked, self.demands)

    def may(self, demand: Demand) -> bool:
        """Return whether the caller has a right, to filter what it gets."""
        admission = self.admission
        if admission is None:
            return True
        return admission.gate.judge(admission.caller, demand, self._address).error is None


OPEN: Final = Access()
"""The access of every request to a service without a gate."""


async def access_of(request: Request) -> Access:
    """Return the access of an ordinary request's caller."""
    access: Access = request.scope.get(ACCESS_KEY, OPEN)
    return access


CallersAccess = Annotated[Access, Depends(access_of)]
"""An ordinary endpoint's annotation: the access of its request's caller."""


def _earlier(good_until: float, verdict: Verdict) -> float:
    # A head is shared by connections: what depends on an address holds for one request.
    return min(good_until, -inf if verdict.depends_on_address else verdict.good_until)


def address_of(client: Any) -> str:  # noqa: ANN401 - as servers have it: a pair, or None
    """Return the IP address of a client; empty if the server does not know it."""
    return "" if client is None else str(client[0])
