"""Turn the doctor's observations into findings, each with a fix. Pure.

The thresholds are the brokers' own if they have one: writes are refused above 90 % of disk use, and
the oldest segments are deleted above 75 %.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from eruca.cli.counts import counted
from eruca.contract.routes import BrokerAddress
from eruca.contract.status import BrokerStatus, LogStatus, TierStatus

SLOW_SECONDS: Final = 0.5  # an empty request over a healthy network is much faster
# above it, ids, store times and offsets by time become inconsistent
CLOCK_SKEW_SECONDS: Final = 5.0
DISK_WARNING_RATIO: Final = 0.75
DISK_REFUSAL_RATIO: Final = 0.90
BEHIND_BYTES: Final = 64 * 1024 * 1024  # healthy dispatch never lags by so much
NEAR_LIMIT_RATIO: Final = 0.9
CERTIFICATE_DAYS: Final = 14  # before its end: time to renew one by hand


class Verdict(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"  # works now, and may fail soon
    FAULT = "fault"  # does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    subject: str  # the step: settings, a name server's URL, a broker's name
    check: str
    verdict: Verdict
    detail: str
    fix: str | None = None


def answer_time(subject: str, check: str, seconds: float) -> Finding:
    """Judge the time of an answer."""
    detail = f"answers in {seconds * 1000:.0f} ms"
    if seconds < SLOW_SECONDS:
        return Finding(subject, check, Verdict.OK, detail)
    return Finding(subject, check, Verdict.WARNING, detail, "check the network and its load")


def unused_proxy(urls: Sequence[str], environment: Mapping[str, str]) -> Finding | None:
    """Return a finding about a proxy that other programs would use for name servers, or None."""
    lowered = {name.lower(): value for name, value in environment.items()}
    proxy = lowered.get("http_proxy") or lowered.get("all_proxy")
    if not proxy:
        return None
    exempt = [part.strip().lower().lstrip(".") for part in lowered.get("no_proxy", "").split(",")]
    hosts = [urlsplit(url).hostname or "" for url in urls]
    direct = [h for h in hosts if "*" not in exempt and not _is_exempt(h, exempt)]
    if not direct:
        return None
    return Finding(
        "settings",
        "proxy",
        Verdict.OK,
        f"requests to {', '.join(direct)} bypass the environment's proxy",
    )


def _is_exempt(host: str, exempt: Sequence[str]) -> bool:
    return any(part and (host == part or host.endswith(f".{part}")) for part in exempt)


def agreement(brokers_by_namesrv: Mapping[str, Iterable[str]]) -> Finding:
    """Judge whether all name servers know the same brokers."""
    known = {url: sorted(names) for url, names in brokers_by_namesrv.items()}
    if len({tuple(names) for names in known.values()}) <= 1:
        return Finding("name servers", "agreement", Verdict.OK, "all know the same brokers")
    detail = "; ".join(f"{url} knows {', '.join(names) or 'none'}" for url, names in known.items())
    return Finding(
        "name servers",
        "agreement",
        Verdict.WARNING,
        detail,
        "give every broker all name servers in ERUCA_BROKER_NAMESRV_URLS; repeat this if a"
        " broker has just started",
    )


def advertised_address(name: str, url: str, namesrv_urls: Sequence[str]) -> Finding:
    """Judge whether clients can use a broker's advertised address from here."""
    host = urlsplit(url).hostname or ""
    remote = [u for u in namesrv_urls if not is_loopback(urlsplit(u).hostname or "")]
    if _is_unspecified(host):
        fault = f"advertises {url}, which is an address to listen on; clients cannot connect to it"
    elif is_loopback(host) and remote:
        fault = f"advertises {url}, which leads each client to its own machine"
    else:
        return Finding(name, "advertised URL", Verdict.OK, url)
    return Finding(
        name,
        "advertised URL",
        Verdict.FAULT,
        fault,
        "set the broker's ERUCA_BROKER_ADVERTISED_URL to a URL that clients can reach",
    )


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def heartbeat(name: str, address: BrokerAddress, now_seconds: float) -> Finding:
    """Judge the age of a broker's last heartbeat; both times are by the name server's clock."""
    left = address.expires_at.timestamp() - now_seconds
    allowed = (address.expires_at - address.last_seen_at).total_seconds()
    detail = f"registered; expires in {max(left, 0):.0f} s without a heartbeat"
    if left >= allowed / 4:
        return Finding(name, "registration", Verdict.OK, detail)
    return Finding(
        name,
        "registration",
        Verdict.WARNING,
        f"{detail}: heartbeats are missing",
        "check that the broker runs, and reaches the name server",
    )


def identity(name: str, status: BrokerStatus, url: str) -> Finding:
    """Judge whether the broker at an advertised URL is the one that registered it."""
    if status.broker_name == name:
        return Finding(name, "identity", Verdict.OK, f"cluster {status.cluster}, {status.version}")
    return Finding(
        name,
        "identity",
        Verdict.FAULT,
        f"{url} is {status.broker_name}",
        "give each broker its own ERUCA_BROKER_ADVERTISED_URL",
    )


def broker_health(name: str, status: BrokerStatus) -> list[Finding]:
    """Judge a broker's status."""
    return [
        _writable(name, status),
        _disk(name, status.disk_used_ratio),
        _projections(name, status),
        _load(name, status),
        *([] if status.tier is None else [_tier(name, status.log, status.tier)]),
    ]


def _writable(name: str, status: BrokerStatus) -> Finding:
    if status.is_writable:
        return Finding(name, "writes", Verdict.OK, f"accepted; flush is {status.flush_mode}")
    reason = status.refusal or "no reason given"
    return Finding(
        name,
        "writes",
        Verdict.FAULT,
        f"refused: {reason}",
        "fix the reason; the broker's log has details",
    )


def _disk(name: str, ratio: float) -> Finding:
    detail = f"{ratio:.0%} of the disk is used"
    fix = "free disk space, shorten retention, or add a broker"
    if ratio >= DISK_REFUSAL_RATIO:
        return Finding(name, "disk", Verdict.FAULT, f"{detail}: writes are refused", fix)
    if ratio >= DISK_WARNING_RATIO:
        return Finding(
            name, "disk", Verdict.WARNING, f"{detail}: old segments are deleted early", fix
        )
    return Finding(name, "disk", Verdict.OK, detail)


def _projections(name: str, status: BrokerStatus) -> Finding:
    failing = [f"{p.name}: {p.failure}" for p in status.projections if p.failure is not None]
    if failing:
        return Finding(
            name,
            "projections",
            Verdict.FAULT,
            "; ".join(failing),
            "acknowledged messages are safe in the log; fix the disk, and if that is not"
            " enough, restart the broker: it rebuilds damaged projections",
        )
    behind = {p.name: p.behind_bytes for p in status.projections if p.behind_bytes > BEHIND_BYTES}
    if not behind:
        return Finding(name, "projections", Verdict.OK, "all projections are up to date")
    detail = ", ".join(f"{key} is {size / 2**20:.0f} MiB" for key, size in behind.items())
    return Finding(
        name,
        "projections",
        Verdict.WARNING,
        f"{detail} behind the log",
        "wait: they catch up; if not, check the broker's load and log",
    )


def _tier(name: str, log: LogStatus, tier: TierStatus) -> Finding:
    if tier.failure is not None:
        return Finding(
            name,
            "tier",
            Verdict.FAULT,
            tier.failure,
            "check the object store and the broker's access to it; meanwhile the broker's disk"
            " keeps what the tier lacks, and refuses writes once it is full",
        )
    if tier.missing_count:
        return Finding(
            name,
            "tier",
            Verdict.FAULT,
            f"{tier.missing_count} of its objects are missing",
            "restore them from a copy, or an earlier version; the broker's log names them",
        )
    if tier.damaged_objects:
        return Finding(
            name,
            "tier",
            Verdict.FAULT,
            f"{tier.damaged_objects} of its objects are damaged, and could not be repaired",
            "restore the objects that the broker's log names, from a copy or an earlier version",
        )
    if tier.damaged_count:
        return Finding(
            name,
            "tier",
            Verdict.FAULT,
            f"objects were damaged in {counted(tier.damaged_count, 'read')}",
            "restore the objects that the broker's log names, from a copy or an earlier version",
        )
    if tier.behind_bytes > max(BEHIND_BYTES, 2 * log.segment_bytes):
        return Finding(
            name,
            "tier",
            Verdict.WARNING,
            f"{tier.behind_bytes / 2**20:.0f} MiB of closed segments are not in it yet",
            "wait: it catches up; if not, raise ERUCA_BROKER_TIER_UPLOAD_RATE_MAX",
        )
    begin = "nothing yet" if log.tier_min_offset is None else f"log offset {log.tier_min_offset} on"
    return Finding(
        name, "tier", Verdict.OK, f"has {begin}; the broker's disk has {log.min_offset} on"
    )


def _load(name: str, status: BrokerStatus) -> Finding:
    held = (status.held_requests, status.held_requests_max)
    sent = (status.bytes_in_flight, status.bytes_in_flight_max)
    consumed = (status.consume_bytes_in_flight, status.consume_bytes_in_flight_max)
    detail = f"{held[0]} of {held[1]} held requests"
    if any(value >= NEAR_LIMIT_RATIO * limit for value, limit in (held, sent, consumed)):
        mebibytes = " and ".join(
            f"{value / 2**20:.0f} of {limit / 2**20:.0f} MiB of {whose} in flight"
            for whose, (value, limit) in (("senders", sent), ("consumers", consumed))
        )
        return Finding(
            name,
            "load",
            Verdict.WARNING,
            f"{detail}, {mebibytes}: near the limit",
            "add brokers, or raise the limit",
        )
    return Finding(name, "load", Verdict.OK, detail)


def clock(name: str, skew_seconds: float, uncertainty_seconds: float) -> Finding:
    """Judge the difference between a service's clock and ours.

    Args:
        name: The service.
        skew_seconds: Its clock minus ours.
        uncertainty_seconds: Maximum error of *skew_seconds*.
    """
    detail = f"within {abs(skew_seconds) + uncertainty_seconds:.1f} s of ours"
    if abs(skew_seconds) - uncertainty_seconds <= CLOCK_SKEW_SECONDS:
        return Finding(name, "clock", Verdict.OK, detail)
    direction = "ahead of" if skew_seconds > 0 else "behind"
    return Finding(
        name,
        "clock",
        Verdict.WARNING,
        f"{abs(skew_seconds):.0f} s {direction} ours",
        "synchronise both clocks (NTP)",
    )


def certificate(name: str, expires_at: datetime, now: datetime) -> Finding:
    """Judge how long a service's certificate is still valid."""
    day = f"{expires_at:%Y-%m-%d}"
    days = (expires_at - now) / timedelta(days=1)
    if days > CERTIFICATE_DAYS:
        return Finding(name, "certificate", Verdict.OK, f"valid until {day}")
    return Finding(
        name,
        "certificate",
        Verdict.WARNING,
        f"expires in {days:.0f} days, on {day}",
        "renew it and replace its files: the service reads them within seconds",
    )


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Tell whether no finding is a fault."""
    return all(finding.verdict is not Verdict.FAULT for finding in findings)
