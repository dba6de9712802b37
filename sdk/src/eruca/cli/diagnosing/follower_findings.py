"""Find faults of the services that follow brokers' logs: query and checker. Pure.

Each instance follows some of the brokers. Its status covers all of them, from the shared database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from eruca.cli.diagnosing.findings import BEHIND_BYTES, Finding, Verdict
from eruca.contract.queries import QueryStatus
from eruca.contract.transactions import CheckerStatus


@dataclass(frozen=True, slots=True)
class Following:
    """An instance's status, with the status of its logs."""

    name: str
    version: str
    faults: Mapping[str, str]  # of this instance, by broker: why it cannot be followed
    behind: Mapping[str, int | None]  # bytes by broker, of all instances; None: unknown
    orphans: Collection[str]  # brokers that no instance follows now

    @classmethod
    def of_query(cls, status: QueryStatus) -> Following:
        """Return a query service's status."""
        return cls(
            status.name,
            status.version,
            status.faults,
            {log.broker_name: log.behind_bytes for log in status.followed},
            [log.broker_name for log in status.followed if log.followed_by is None],
        )

    @classmethod
    def of_checker(cls, status: CheckerStatus) -> Following:
        """Return a transaction checker's status."""
        return cls(
            status.name,
            status.version,
            status.faults,
            {log.broker_name: log.behind_bytes for log in status.followed},
            [log.broker_name for log in status.followed if log.followed_by is None],
        )


def judged(
    subject: str, what: str, following: Following, registered: Collection[str]
) -> Iterator[Finding]:
    """Yield the findings about an instance that answers.

    Args:
        subject: Its name in the findings.
        what: The kind of service.
        following: Its status.
        registered: The brokers that the name servers know.
    """
    yield Finding(subject, "identity", Verdict.OK, f"{what} {following.name}, {following.version}")
    for broker, why in sorted(following.faults.items()):
        yield Finding(
            subject,
            "following",
            Verdict.FAULT,
            f"cannot follow {broker}: {why}",
            "fix the cause; for a broker that was removed for good: eruca query forget BROKER",
        )
    left = set(registered) - (following.behind.keys() - set(following.orphans))
    if missing := sorted(left - following.faults.keys()):
        yield Finding(
            subject,
            "following",
            Verdict.WARNING,
            f"no instance follows {', '.join(missing)}",
            "wait: a new broker is followed within seconds; if not, check that the service has"
            " these name servers, and check its log",
        )
    yield _lag(subject, following)


def _lag(subject: str, following: Following) -> Finding:
    known = {name: size for name, size in following.behind.items() if size is not None}
    behind = {name: size for name, size in sorted(known.items()) if size > BEHIND_BYTES}
    if not behind:
        names = ", ".join(sorted(following.behind)) or "no broker yet"
        return Finding(subject, "projection", Verdict.OK, f"up to date with the log of {names}")
    detail = ", ".join(f"{size / 2**20:.0f} MiB behind {name}" for name, size in behind.items())
    return Finding(
        subject,
        "projection",
        Verdict.WARNING,
        detail,
        "wait: it catches up; if not, add an instance with the same DATABASE_URL, or check"
        " PostgreSQL's load",
    )
