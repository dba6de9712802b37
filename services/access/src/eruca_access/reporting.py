"""Write the records of an audit trail: a loop beside the requests, which never wait for it.

A broker writes its records into its own log. Every other service, and a replica that is not the
master, reports them to a broker over HTTP, with its own credentials. Records that are not
acknowledged are written again, so a record may be there twice.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeAlias

import structlog

from eruca.contract.audit import AUDIT_REPORT_COUNT_MAX, AuditRecord, AuditReport
from eruca.contract.errors import ErucaError, NotMasterError, UnavailableError
from eruca.contract.fields import MASTER_ID
from eruca.contract.routes import BrokerGroup, BrokerList
from eruca.core.client_settings import NETWORK_DEFAULT
from eruca.core.routing.route_table import address_for
from eruca.services.cluster import parsed, send_model
from eruca.services.http import (
    HttpTransport,
    credentials_of,
    http1_transport,
    problem_error,
)
from eruca_access.audit.trail import AuditMetrics, AuditTrail
from eruca_access.gate import PolicyGate
from eruca_access.quotas import QuotaBook, QuotaMetrics
from eruca_chassis.app import ServiceApp
from eruca_chassis.loops import BackgroundLoop

REPORTS_TARGET: Final = "/v1/audit/records"
PERIOD_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 5.0  # after a failure
SAID_AFTER_SECONDS: Final = 30.0  # of failures; a broker registers sooner
REPORT_SECONDS: Final = 5.0  # for one request
LAST_SECONDS: Final = 2.0  # for what waits as the service stops

Write: TypeAlias = Callable[[Sequence[AuditRecord]], Awaitable[None]]
FindBrokers: TypeAlias = Callable[[], Awaitable[Sequence[str]]]

_log = structlog.get_logger()


class AuditLoop:
    """Writes a trail's records, in order.

    Args:
        trail: The records.
        write: Writes some; raises an ErucaError if they may not have been written.
    """

    def __init__(self, trail: AuditTrail, write: Write) -> None:
        self._trail = trail
        self._write = write
        self._failing_since: float | None = None  # monotonic; None: the last attempt succeeded
        self._has_said_so = False
        self._loop = BackgroundLoop("audit", self._step, period_seconds=PERIOD_SECONDS)

    def start(self) -> None:
        """Start writing."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop; try once more to write what waits, and say how much is lost."""
        await self._loop.stop(within_seconds=REPORT_SECONDS)
        try:
            async with asyncio.timeout(LAST_SECONDS):
                while await self._write_some():
                    pass
        except TimeoutError:
            pass  # what waits is counted below
        if lost := self._trail.lose_all():
            _log.warning(
                "audit records lost: the service stops, and no broker took them", count=lost
            )

    async def _step(self) -> float | None:
        if await self._write_some():
            return 0.0
        return None if self._failing_since is None else RETRY_SECONDS

    async def _write_some(self) -> bool:
        """Write the oldest records; return whether more may be written at once."""
        records = self._trail.take(AUDIT_REPORT_COUNT_MAX)
        if not records:
            return False
        try:
            await self._write(records)
        except ErucaError as error:
            self._trail.put_back(records)
            self._failed(error)
            return False
        except BaseException:
            self._trail.put_back(records)
            raise
        if self._has_said_so:
            _log.info("audit records are written again")
        self._failing_since, self._has_said_so = None, False
        return bool(len(self._trail))

    def _failed(self, error: ErucaError) -> None:
        """Note a failure; say so if it lasts, since a cluster starts and stops one by one."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= SAID_AFTER_SECONDS and not self._has_said_so:
            self._has_said_so = True
            _log.error("audit records wait: no broker takes them", reason=str(error))


class BrokerReports:
    """Writes records by reporting them to a broker.

    Args:
        transport: For the requests.
        find: Returns the URLs of brokers that may take them.
    """

    def __init__(self, transport: HttpTransport, find: FindBrokers) -> None:
        self._transport = transport
        self._find = find
        self._last = ""  # the broker that took the latest records

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Report records to one broker.

        Raises:
            ErucaError: None has acknowledged them.
        """
        report = AuditReport(records=list(records))
        urls = list(await self._find())
        urls.sort(key=lambda url: url != self._last)
        failure: ErucaError = UnavailableError("no live broker is known")
        for url in urls:
            try:
                await report_to(self._transport, url, report)
            except ErucaError as error:
                failure = error
            else:
                self._last = url
                return
        raise failure


async def report_to(transport: HttpTransport, url: str, report: AuditReport) -> None:
    """Report records to the broker at *url*; to its master, if it is a replica.

    Raises:
        ErucaError: They may not have been written.
    """
    try:
        await _send(transport, url, report)
    except NotMasterError as error:
        if not error.master_urls:
            raise
        await _send(transport, address_for(error.master_urls, NETWORK_DEFAULT), report)


async def _send(transport: HttpTransport, url: str, report: AuditReport) -> None:
    await send_model(
        transport, "POST", url, REPORTS_TARGET, report, timeout=REPORT_SECONDS, exclude_none=True
    )


def masters_of(groups: Sequence[BrokerGroup], network: str = NETWORK_DEFAULT) -> list[str]:
    """Return the URLs of the masters among live brokers."""
    return [
        address_for(broker.urls, network)
        for group in groups
        for broker in group.brokers
        if broker.broker_id == MASTER_ID
    ]


def at_name_servers(
    transport: HttpTransport, urls: Sequence[str], network: str = NETWORK_DEFAULT
) -> FindBrokers:
    """Return a function that asks name servers for the masters' URLs."""

    async def find() -> Sequence[str]:
        failure: ErucaError = UnavailableError("no name server is known")
        for url in urls:
            try:
                answer = await transport.request("GET", url, "/v1/brokers", timeout=REPORT_SECONDS)
                if answer.status >= 300:
                    raise problem_error(answer, f"GET {url}/v1/brokers")
                return masters_of(parsed(BrokerList, answer, url).brokers, network)
            except ErucaError as error:
                failure = error
        raise failure

    return find


@asynccontextmanager
async def writing_audit(app: ServiceApp, write: Write) -> AsyncIterator[None]:
    """Write the audit records of a service's gate during the block; without a gate, none."""
    gate = app.gate
    if not isinstance(gate, PolicyGate):
        # Empty, so that alerts find their metrics.
        with app.telling(AuditMetrics(AuditTrail(""))), app.telling(QuotaMetrics(QuotaBook())):
            yield
        return
    trail = gate.trail
    if app.addresses:
        host, port = app.addresses[0][:2]
        trail.service = f"{trail.service} {host}:{port}"
    loop = AuditLoop(trail, write)
    with app.telling(AuditMetrics(trail)), app.telling(QuotaMetrics(gate.quotas)):
        loop.start()
        try:
            yield
        finally:
            await loop.stop()


@asynccontextmanager
async def reporting_audit(
    app: ServiceApp, find: Callable[[HttpTransport], FindBrokers]
) -> AsyncIterator[None]:
    """Report the audit records of a service's gate to brokers during the block.

    Args:
        app: The service.
        find: Returns how to find brokers, given the transport of the service's credentials.
    """
    async with AsyncExitStack() as stack:
        transport = http1_transport(credentials_of(os.environ))
        stack.push_async_callback(transport.close)
        await stack.enter_async_context(
            writing_audit(app, BrokerReports(transport, find(transport)).write)
        )
        yield
