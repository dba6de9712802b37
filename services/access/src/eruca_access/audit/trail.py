"""The audit trail of one service: records that are made at the gate, and wait to be written.

Making a record never waits and never fails. Records wait in memory until a broker has them
(:mod:`eruca_access.reporting`). If too many wait, new ones are lost: they are counted, and a record
says how many there were as soon as there is room again.

Texts in records come from requests. They are cut to a length, and characters that a terminal would
obey are replaced.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eruca.contract.access import PolicyDocument
from eruca.contract.audit import AUDIT_EVENTS, AUDIT_TEXT_SIZE_MAX, AuditEvent, AuditRecord
from eruca.contract.errors import AccessError
from eruca_access.audit.sampling import FirstUses, RefusalSampler
from eruca_access.needs import ACT_RIGHTS
from eruca_chassis.admission.budget import client_of
from eruca_chassis.admission.gate import Act, Asked, Caller, Refusal
from eruca_chassis.admission.needs import Demand

WAITING_MAX: Final = 4_096  # records, each about 2 KB of memory
REPORT_OPERATION: Final = "reportAudit"  # how other services' records come; see _is_own
_CUT: Final = "…"
_CHANGES_SAID_MAX: Final = 8  # rules in one record
_CONTROLS: Final = dict.fromkeys(
    (
        *range(32),
        *range(0x7F, 0xA0),  # 0x9B begins a command in 8-bit terminals
        *range(0x2028, 0x202F),  # line separators, and changes of the direction of writing
        *range(0x2066, 0x206A),
    ),
    "?",
)


class AuditTrail:
    """The records of one service.

    Args:
        service: The service, for records: its kind, and what tells it from others of the kind.
    """

    def __init__(self, service: str) -> None:
        self.service = service
        self.counts: Counter[AuditEvent] = Counter()  # records made since the start
        self.lost_count = 0  # records that could be written nowhere
        self._lost_unsaid = 0  # … of which no record says so yet
        self._waiting: deque[AuditRecord] = deque()
        self._refusals = RefusalSampler()
        self._uses = FirstUses()

    def __len__(self) -> int:
        """Return the number of records that wait."""
        return len(self._waiting)

    # --- What the gate tells ----------------------------------------------------------------------

    def refused(self, refusal: Refusal) -> None:
        """Record a refusal, unless its caller has had many."""
        asked, error, caller, demand, verdict = refusal
        if not isinstance(error, AccessError):
            return  # there are no rules yet: nobody was refused for a lack of rights
        said = client_of((asked.address, 0)) if caller is None else caller.name
        if not self._refusals.writes(said, time.monotonic()):
            return
        self._add(
            "refusal",
            **_request(asked, caller),
            decision="refused",
            status=error.status,
            reason=error.code,
            resource=None if demand is None else _resources([demand]),
            rule=None if verdict is None else _text(verdict.rule),
            detail=_text(error.detail) if caller is None else None,
        )

    def used(self, caller: Caller, asked: Asked) -> float:
        """Record the first use of a credential in an hour; return the time of the next one."""
        if asked.operation == REPORT_OPERATION:
            return float("inf")  # records about the reports of records would have no end
        now = time.monotonic()
        is_first, until = self._uses.use(f"{caller.name} {caller.credential}", asked.address, now)
        if is_first:
            self._add("credential_used", **_request(asked, caller), decision="allowed")
        return until

    def acted(self, act: Act, rules: Iterable[object]) -> None:
        """Record an act, and the rules that allow it."""
        asked, caller, demands, status = act
        self._add(
            "act",
            **_request(asked, caller),
            decision="allowed",
            status=status,
            resource=_resources(demands),
            rule=_text("; ".join(dict.fromkeys(map(str, rules))) or None),
        )

    def rules_changed(self, before: PolicyDocument, after: PolicyDocument) -> None:
        """Record that other rules are in force, and how they differ."""
        said = list(_changes(before, after))
        more = len(said) - _CHANGES_SAID_MAX
        text = "; ".join(said[:_CHANGES_SAID_MAX]) or "the same rules, written otherwise"
        self._add(
            "rules_changed",
            detail=_text(text, end=f" and {more} more changes" if more > 0 else ""),
        )

    def rules_stale(self, fault: str) -> None:
        """Record that newer rules are not in force, and why."""
        self._add("rules_stale", detail=_text(fault))

    # --- What is written --------------------------------------------------------------------------

    def take(self, count_max: int) -> list[AuditRecord]:
        """Remove and return the oldest records, at most *count_max*."""
        for caller, left_out_count in self._refusals.ended(time.monotonic()):
            is_known = ":" in caller and caller.split(":")[0] in _PRINCIPAL_KINDS
            self._add(
                "refusals_left_out",
                principal=caller if is_known else None,
                address=None if is_known else caller or None,
                decision="refused",
                count=left_out_count,
            )
        if self._lost_unsaid and len(self._waiting) < WAITING_MAX:
            lost, self._lost_unsaid = self._lost_unsaid, 0
            self._add("records_lost", count=lost)
        return [self._waiting.popleft() for _ in range(min(count_max, len(self._waiting)))]

    def put_back(self, records: list[AuditRecord]) -> None:
        """Let *records*, the oldest ones, wait again: they were not written."""
        self._waiting.extendleft(reversed(records))

    def lose_all(self) -> int:
        """Drop all records that wait, as the service ends; return their number."""
        count = len(self._waiting)
        self._waiting.clear()
        self.lost_count += count
        return count

    def _add(self, event: AuditEvent, **fields: Any) -> None:  # noqa: ANN401 - as the model has
        if len(self._waiting) >= WAITING_MAX:
            self.lost_count += 1
            self._lost_unsaid += 1
            return
        self.counts[event] += 1
        now = datetime.now(UTC)
        self._waiting.append(
            AuditRecord(at=now, event=event, service=_text(self.service) or "", **fields)
        )


_PRINCIPAL_KINDS: Final = frozenset({"user", "service", "oidc", "cert"})


class AuditMetrics(Collector):
    """The metrics of a trail."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, for Prometheus."""
        made = CounterMetricFamily(
            "eruca_audit_records", "Audit records made, by event", labels=["event"]
        )
        for event in AUDIT_EVENTS:
            made.add_metric([event], self._trail.counts[event])
        yield made
        yield CounterMetricFamily(
            "eruca_audit_records_lost",
            "Audit records that could be written nowhere",
            value=self._trail.lost_count,
        )
        yield GaugeMetricFamily(
            "eruca_audit_records_waiting",
            "Audit records that no broker has yet",
            value=len(self._trail),
        )


def is_act(demand: Demand) -> bool:
    """Return whether using the right that *demand* asks for is an act."""
    return demand.rights == ACT_RIGHTS


def _request(asked: Asked, caller: Caller | None) -> dict[str, str | None]:
    return {
        "principal": None if caller is None else _text(caller.name),
        "credential": None if caller is None else _text(caller.credential),
        "address": _text(asked.address or None),
        "operation": asked.operation or None,
        "request_id": asked.request_id or None,
    }


def _resources(demands: Iterable[Demand]) -> str | None:
    said = (f"{kind}:{name}" if name else str(kind) for _, kind, name in demands)
    return _text(" ".join(said) or None)


def _text(value: object | None, end: str = "") -> str | None:
    """Return a value as the text of a record: cut, and without control characters."""
    if value is None:
        return None
    text = str(value).translate(_CONTROLS).encode("utf-8", "replace").decode()
    size_max = AUDIT_TEXT_SIZE_MAX - len(end)
    return (text if len(text) <= size_max else text[: size_max - 1] + _CUT) + end


def _changes(before: PolicyDocument, after: PolicyDocument) -> Iterator[str]:
    """Yield how two policies differ, a text for each rule, key and member; keys by their ids."""
    for said_of in (
        _rules_said,
        _members_said,
        _keys_said,
        _issuers_said,
        _quotas_said,
        _namespaces_said,
    ):
        old, new = said_of(before), said_of(after)
        for mark, only in (("+", new - old), ("-", old - new)):
            yield from (f"{mark} {text}" for text in sorted(only))


def _rules_said(document: PolicyDocument) -> set[str]:
    return {str(rule) for rule in document.rules}


def _members_said(document: PolicyDocument) -> set[str]:
    return {f"{name} in role:{role}" for role, names in document.roles.items() for name in names}


def _quotas_said(document: PolicyDocument) -> set[str]:
    return {str(quota) for quota in document.quotas}


def _namespaces_said(document: PolicyDocument) -> set[str]:
    return {
        f"{holder} in the namespace {namespace.name}"
        for namespace in document.namespaces
        for holder in namespace.to
    }


def _issuers_said(document: PolicyDocument) -> set[str]:
    return {
        f"issuer {one.name} {one.issuer} for {one.audience}"
        + "".join(f", {claim} has role:{role}" for claim, role in sorted(one.roles.items()))
        for one in document.issuers
    }


def _keys_said(document: PolicyDocument) -> set[str]:
    return {
        f"key:{key.id} of {key.principal}"
        + ("" if key.expires_at is None else f" until {key.expires_at.isoformat()}")
        for key in document.keys
    }
