"""Judge the rules of all services: are there any, are they the newest ones, are keys well? Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from eruca.cli.diagnosing.findings import Finding, Verdict
from eruca.contract.policies import AccessKey, AccessStatus

SUBJECT: Final = "rules"
KEY_DAYS: Final = 14  # before a key's end: time to rotate it and to give it to its programs
OLD_SECONDS: Final = 300.0  # services hold a request for 30 s, so the rules are at most that old
UNUSED_DAYS: Final = 7  # for which all services must have run
SHOWN_COUNT: Final = 10  # keys of one finding


def judged(
    statuses: Mapping[str, AccessStatus],
    refusals: Mapping[str, str],
    now: datetime,
    *,
    is_local: bool,
) -> Iterator[Finding]:
    """Yield the findings.

    Args:
        statuses: By service, as far as they said it.
        refusals: The reasons of the other services.
        now: The time.
        is_local: Whether only this machine reaches the services.
    """
    for name, reason in refusals.items():
        yield Finding(name, SUBJECT, Verdict.WARNING, f"not shown: {reason}", _FIX_RIGHT)
    closed = {name: one for name, one in statuses.items() if one.source != "none"}
    open_ones = sorted(statuses.keys() - closed.keys())
    if statuses and not closed:
        yield _without(is_local=is_local)
        return
    for name in open_ones:
        detail = "none here, although other services have rules: everybody may do everything"
        yield Finding(name, SUBJECT, Verdict.FAULT, detail, _FIX_OPEN)
    for name, status in closed.items():
        yield _of_service(name, status)
    if closed:
        yield _agreement(closed)
        yield from _keys(closed.values(), now)


_FIX_RIGHT: Final = "run the doctor with the key of a principal with the right query on cluster"
_FIX_OPEN: Final = "give it the same ERUCA_AUTH_FILE, or ERUCA_AUTH=controller, and restart it"


def _without(*, is_local: bool) -> Finding:
    if is_local:
        detail = "none: everybody on this machine may do everything"
        return Finding(SUBJECT, "present", Verdict.OK, detail)
    return Finding(
        SUBJECT,
        "present",
        Verdict.WARNING,
        "none: everybody who reaches the services may do everything",
        "eruca auth init DIR makes rules and keys; RUNNING.md, who may do what",
    )


def _of_service(name: str, status: AccessStatus) -> Finding:
    if status.version is None:
        detail = f"none yet, so that nobody is admitted: {status.fault}"
        return Finding(name, SUBJECT, Verdict.FAULT, detail, "start a controller that has rules")
    where = "the file" if status.source == "file" else "the controllers"
    if status.fault is not None:
        detail = f"version {status.version} is in force, and may be old: {status.fault}"
        return Finding(name, SUBJECT, Verdict.FAULT, detail, f"repair {where}; nothing is lost")
    if status.age_seconds > OLD_SECONDS:
        detail = f"not compared with the controllers' for {status.age_seconds:.0f} s"
        fix = "check that the service reaches a controller"
        return Finding(name, SUBJECT, Verdict.WARNING, detail, fix)
    return Finding(name, SUBJECT, Verdict.OK, f"version {status.version}, of {where}")


def _agreement(closed: Mapping[str, AccessStatus]) -> Finding:
    names: dict[str, list[str]] = {}
    for name, status in closed.items():
        names.setdefault(status.version or "none", []).append(name)
    if len(names) == 1:
        return Finding(SUBJECT, "agreement", Verdict.OK, "all services have the same version")
    detail = "; ".join(f"{', '.join(of)}: {version}" for version, of in sorted(names.items()))
    return Finding(
        SUBJECT,
        "agreement",
        Verdict.WARNING,
        f"services have different versions: {detail}",
        "repeat this if the rules have just changed; give all services the same source of rules",
    )


def _keys(statuses: Collection[AccessStatus], now: datetime) -> Iterator[Finding]:
    keys = {key.id: key for status in statuses for key in status.keys or ()}
    ending = [
        key
        for key in keys.values()
        if key.expires_at is not None and key.expires_at - now <= timedelta(days=KEY_DAYS)
    ]
    expired = [key for key in ending if key.expires_at is not None and key.expires_at <= now]
    soon = [key for key in ending if key not in expired]
    if soon:
        detail = f"expire within {KEY_DAYS} days: {_named(soon)}"
        fix = "eruca auth key rotate KEY_ID, and give the new key to its programs"
        yield Finding(SUBJECT, "keys", Verdict.WARNING, detail, fix)
    else:
        yield Finding(SUBJECT, "keys", Verdict.OK, f"none expires within {KEY_DAYS} days")
    if expired:
        detail = f"have expired: {_named(expired)}"
        yield Finding(SUBJECT, "old keys", Verdict.OK, detail, "eruca auth key revoke KEY_ID")
    since = max(status.started_at for status in statuses)
    used = {key.id for status in statuses for key in status.keys or () if key.last_used_at}
    unused = [key for key in keys.values() if key.id not in used and key not in expired]
    if unused and now - since >= timedelta(days=UNUSED_DAYS):
        detail = f"no service was called with these since {since:%Y-%m-%d}: {_named(unused)}"
        yield Finding(
            SUBJECT, "unused keys", Verdict.WARNING, detail, "eruca auth key revoke KEY_ID"
        )


def _named(keys: Collection[AccessKey]) -> str:
    shown = [f"{key.id} of {key.principal}" for key in sorted(keys, key=lambda key: key.id)]
    more = f", and {len(shown) - SHOWN_COUNT} more" if len(shown) > SHOWN_COUNT else ""
    return ", ".join(shown[:SHOWN_COUNT]) + more
