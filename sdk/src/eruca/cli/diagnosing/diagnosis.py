"""Check every step from here to a stored message, one after another.

The steps are: settings, name servers, the brokers that they know, each broker's address for
clients, each broker's status, and a message to each broker and back. Then come the broker groups,
as the controllers and the replicas report them, the services that follow the brokers' logs, the
consoles, and the rules of all services. All steps use plain HTTP, without the SDK's routes and
retries. So a finding is about its own step only.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import httpx

from eruca.aio.http.clients import httpx_client
from eruca.aio.http.credentials import Credentials
from eruca.cli.diagnosing import findings as judge
from eruca.cli.diagnosing.consoles import examined_consoles
from eruca.cli.diagnosing.findings import Finding, Verdict
from eruca.cli.diagnosing.follower_findings import Following, judged
from eruca.cli.diagnosing.probes import TIMEOUT_SECONDS, Probe, ask
from eruca.cli.diagnosing.replica_findings import judged as judged_replicas
from eruca.cli.diagnosing.rule_findings import judged as judged_rules
from eruca.contract.broker_groups import BrokerGroupList, BrokerGroupView
from eruca.contract.errors import (
    ErucaError,
    ForbiddenError,
    NameServerSettlingError,
    UnauthenticatedError,
)
from eruca.contract.fields import MASTER_ID, STANDALONE_EPOCH
from eruca.contract.policies import AccessStatus
from eruca.contract.queries import QueryStatus
from eruca.contract.replication import ReplicationStatus
from eruca.contract.routes import BrokerAddress, BrokerGroup, BrokerList, KvNamespace
from eruca.contract.status import BrokerStatus
from eruca.contract.transactions import CheckerStatus
from eruca.core.client_settings import NAMESRV_URLS_DEFAULT, ClientSettings
from eruca.core.routing.route_table import address_for
from eruca.core.routing.services import CONTROLLER, QUERY_SERVICE, TXN_CHECKER, Service

TOPIC_PREFIX: Final = "eruca-doctor-"
_DATE_UNIT_SECONDS: Final = 1.0  # of the Date header


async def examine(
    namesrv_urls: str | None, credentials: Credentials, *, write: bool
) -> AsyncIterator[Finding]:
    """Yield the findings of each step; a step that fails hides the steps after it.

    Args:
        namesrv_urls: From the command line; None: the environment's.
        credentials: For the requests.
        write: Whether to send a message through each broker, on a temporary topic.
    """
    try:
        settings = ClientSettings.resolve(os.environ, namesrv_urls=namesrv_urls)
    except ErucaError as error:
        yield Finding("settings", "name servers", Verdict.FAULT, error.detail, error.fix)
        return
    urls = settings.namesrv_urls
    yield Finding("settings", "name servers", Verdict.OK, f"{', '.join(urls)} ({_source(urls)})")
    if (proxy := judge.unused_proxy(urls, os.environ)) is not None:
        yield proxy
    known: dict[str, list[BrokerGroup]] = {}
    reached: dict[str, str] = {}  # services that answered: their URLs, by the name shown
    async with httpx_client(credentials, timeout=TIMEOUT_SECONDS) as client:
        for url in urls:
            async for finding in _name_server(client, url, known):
                yield finding
        if len(known) > 1:
            yield judge.agreement({u: [g.broker_name for g in gs] for u, gs in known.items()})
        groups = {group.broker_name: group for found in known.values() for group in found}
        if known and not groups:
            yield Finding(
                "name servers",
                "brokers",
                Verdict.FAULT,
                "no broker is registered",
                "start a broker with these name servers in its ERUCA_BROKER_NAMESRV_URLS",
            )
        async for finding in _brokers(client, groups, settings, reached, write=write):
            yield finding
        reached |= {url: url for url in known}
        async for finding in _controllers(client, settings, [*known], groups.values(), reached):
            yield finding
        for service in (QUERY_SERVICE, TXN_CHECKER) if known else ():
            async for finding in _followers(client, service, [*known], groups.keys(), reached):
                yield finding
        async for finding in examined_consoles(client, reached):
            yield finding
        async for finding in _rules(client, reached):
            yield finding


async def _brokers(
    client: httpx.AsyncClient,
    groups: Mapping[str, BrokerGroup],
    settings: ClientSettings,
    reached: dict[str, str],
    *,
    write: bool,
) -> AsyncIterator[Finding]:
    for name, group in sorted(groups.items()):
        for address in group.brokers:
            is_one_of_many = len(group.brokers) > 1
            subject = f"{name}/{address.broker_id}" if is_one_of_many else name
            async for finding in _broker(client, name, address, settings, write=write):
                yield replace(finding, subject=subject)
            reached[subject] = address_for(address.urls, settings.network)


def _source(urls: Sequence[str]) -> str:
    environment = os.environ.get("ERUCA_NAMESRV_URLS", "")
    if all(url in environment for url in urls):
        return "ERUCA_NAMESRV_URLS"
    return "the default" if list(urls) == [NAMESRV_URLS_DEFAULT] else "--namesrv"


async def _name_server(
    client: httpx.AsyncClient, url: str, known: dict[str, list[BrokerGroup]]
) -> AsyncIterator[Finding]:
    probe = await ask(client, f"{url}/readyz")
    if probe.fault is not None:
        yield Finding(url, "reachable", Verdict.FAULT, probe.fault, probe.fix)
        return
    yield judge.answer_time(url, "reachable", probe.seconds)
    if (clock := _clock(url, probe)) is not None:
        yield clock
    if (certificate := _certificate(url, probe)) is not None:
        yield certificate
    listed = await ask(client, f"{url}/v1/brokers")
    brokers = listed.model(BrokerList)
    if listed.code == NameServerSettlingError.code:
        yield Finding(url, "brokers", Verdict.WARNING, listed.fault or "", listed.fix)
        return
    if brokers is None:
        fault = listed.fault or "the answer is not a name server's"
        fix = "give the address of a name server; it has another port than a broker"
        yield Finding(url, "brokers", Verdict.FAULT, fault, fix)
        return
    known[url] = brokers.brokers
    names = ", ".join(group.broker_name for group in brokers.brokers) or "none"
    yield Finding(url, "brokers", Verdict.OK, f"registered: {names}")


async def _broker(
    client: httpx.AsyncClient,
    name: str,
    address: BrokerAddress,
    settings: ClientSettings,
    *,
    write: bool,
) -> AsyncIterator[Finding]:
    url = address_for(address.urls, settings.network)
    yield judge.heartbeat(name, address, time.time())
    yield judge.advertised_address(name, url, settings.namesrv_urls)
    probe = await ask(client, f"{url}/readyz")
    if probe.fault is not None:
        yield Finding(name, "reachable", Verdict.FAULT, f"{url}: {probe.fault}", probe.fix)
        return
    yield judge.answer_time(name, "reachable", probe.seconds)
    if (clock := _clock(name, probe)) is not None:
        yield clock
    if (certificate := _certificate(name, probe)) is not None:
        yield certificate
    asked = await ask(client, f"{url}/v1/status")
    status = asked.model(BrokerStatus)
    if status is None:
        fault = f"{url}: {asked.fault or 'answers, but not as a broker does'}"
        fix = "set the broker's ERUCA_BROKER_ADVERTISED_URL to its own address"
        yield Finding(name, "identity", Verdict.FAULT, fault, fix)
        return
    identity = judge.identity(name, status, url)
    yield identity
    for finding in judge.broker_health(name, status):
        yield finding
    if write and identity.verdict is Verdict.OK and address.broker_id == MASTER_ID:
        async for finding in _round_trip(client, name, url):
            yield finding


async def _controllers(
    client: httpx.AsyncClient,
    settings: ClientSettings,
    namesrv_urls: Sequence[str],
    registered: Iterable[BrokerGroup],
    reached: dict[str, str],
) -> AsyncIterator[Finding]:
    """Check the controllers, and each broker group that they know; nothing without replicas."""
    try:
        urls = [*CONTROLLER.given(os.environ)]
    except ErucaError as error:
        yield Finding("settings", CONTROLLER.what, Verdict.FAULT, error.detail, error.fix)
        return
    has_replicas = any(group.epoch > STANDALONE_EPOCH for group in registered)
    if has_replicas and not urls:
        urls = await _announced(client, CONTROLLER, namesrv_urls)
        if not urls:
            fault = "brokers have replicas, and the name servers know no controller"
            fix = CONTROLLER.how_to_have_one
            yield Finding(CONTROLLER.what, "announced", Verdict.WARNING, fault, fix)
    groups: dict[str, tuple[str, BrokerGroupView]] = {}  # with a URL of a controller that has it
    for url in urls:
        asked = await ask(client, f"{url}/v1/broker-groups")
        listed = asked.model(BrokerGroupList)
        if listed is None:
            fault = asked.fault or "the answer is not a controller's"
            fix = f"start a controller there, or correct {CONTROLLER.variable}"
            yield Finding(url, "controller", Verdict.FAULT, fault, fix)
            continue
        reached[url] = url
        yield judge.answer_time(url, "controller", asked.seconds)
        if (certificate := _certificate(url, asked)) is not None:
            yield certificate
        # All controllers have one arbiter.
        groups |= {group.broker_name: (url, group) for group in listed.groups}
    for name, (url, group) in sorted(groups.items()):
        statuses: dict[int, ReplicationStatus] = {}
        faults: dict[int, str] = {}
        for replica in group.replicas:
            replica_url = address_for(replica.urls, settings.network)
            probe = await ask(client, f"{replica_url}/v1/replication/status")
            status = probe.model(ReplicationStatus)
            if status is None:
                fault = probe.fault or "the answer is not a replica's"
                faults[replica.replica_id] = f"{replica_url}: {fault}"
            elif status.replica_id != replica.replica_id:
                faults[replica.replica_id] = f"{replica_url} is replica {status.replica_id}"
            else:
                statuses[replica.replica_id] = status
        # Read again: a change since the list would look as if the arbiter had lost it.
        again = await ask(client, f"{url}/v1/broker-groups/{name}")
        group = again.model(BrokerGroupView) or group  # noqa: PLW2901 - the later one
        for finding in judged_replicas(group, statuses, faults):
            yield finding


async def _followers(
    client: httpx.AsyncClient,
    service: Service,
    namesrv_urls: Sequence[str],
    registered: Collection[str],
    reached: dict[str, str],
) -> AsyncIterator[Finding]:
    """Check each instance of a service that follows brokers' logs."""
    try:
        urls = [*service.given(os.environ)]
    except ErucaError as error:
        yield Finding("settings", service.what, Verdict.FAULT, error.detail, error.fix)
        return
    if not urls:
        urls = await _announced(client, service, namesrv_urls)
    if not urls:  # the service is optional
        yield Finding(service.what, "announced", Verdict.OK, "the name servers know none")
    for url in sorted(urls):
        reached[url] = url
        async for finding in _follower(client, service, url, registered):
            yield finding


async def _announced(
    client: httpx.AsyncClient, service: Service, namesrv_urls: Sequence[str]
) -> list[str]:
    """Return the URLs of a service's instances that any name server knows."""
    urls: set[str] = set()
    for url in namesrv_urls:
        asked = await ask(client, f"{url}/v1/kv/{service.namespace}")
        if (announced := asked.model(KvNamespace)) is not None:
            urls |= {*service.told(announced.entries)}
    return sorted(urls)


async def _follower(
    client: httpx.AsyncClient, service: Service, url: str, registered: Collection[str]
) -> AsyncIterator[Finding]:
    probe = await ask(client, f"{url}/readyz")
    if probe.fault is not None:
        fault = f"{service.what}: {probe.fault}"
        yield Finding(url, "reachable", Verdict.FAULT, fault, probe.fix or service.how_to_have_one)
        return
    yield judge.answer_time(url, "reachable", probe.seconds)
    if (certificate := _certificate(url, probe)) is not None:
        yield certificate
    asked = await ask(client, f"{url}/v1/status")
    if service is QUERY_SERVICE:
        query = asked.model(QueryStatus)
        following = None if query is None else Following.of_query(query)
    else:
        checker = asked.model(CheckerStatus)
        following = None if checker is None else Following.of_checker(checker)
    if following is None:
        fault = asked.fault or f"the answer is not a {service.what}'s"
        fix = f"give the address of a {service.what} in {service.variable}"
        yield Finding(url, "identity", Verdict.FAULT, fault, fix)
        return
    for finding in judged(url, service.what, following, registered):
        yield finding


async def _rules(client: httpx.AsyncClient, reached: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Check the rules of the services that were asked before."""
    statuses: dict[str, AccessStatus] = {}
    refusals: dict[str, str] = {}
    for name, url in reached.items():
        asked = await ask(client, f"{url}/v1/access")
        status = asked.model(AccessStatus)
        if status is not None:
            statuses[name] = status
        elif asked.code in (UnauthenticatedError.code, ForbiddenError.code):
            refusals[name] = asked.fault or ""
    is_local = all(judge.is_loopback(urlsplit(url).hostname or "") for url in reached.values())
    for finding in judged_rules(statuses, refusals, datetime.now(UTC), is_local=is_local):
        yield finding


def _certificate(name: str, probe: Probe) -> Finding | None:
    """Return a finding about a service's certificate; None without TLS."""
    expires_at = probe.certificate_expires_at()
    return None if expires_at is None else judge.certificate(name, expires_at, datetime.now(UTC))


def _clock(name: str, probe: Probe) -> Finding | None:
    """Return a finding about a clock from the Date header; only proxies add this header."""
    date = probe.date()
    if date is None:
        return None
    skew = (date - datetime.now(UTC)).total_seconds()
    return judge.clock(name, skew, probe.seconds + _DATE_UNIT_SECONDS)


async def _round_trip(client: httpx.AsyncClient, name: str, url: str) -> AsyncIterator[Finding]:
    """Send a message to a temporary topic on one broker, pull it, and delete the topic."""
    topic = f"{url}/v1/topics/{TOPIC_PREFIX}{secrets.token_hex(6)}"
    text = secrets.token_hex(16)
    started_at = time.perf_counter()
    created = await ask(
        client, topic, method="PUT", json={"read_queue_count": 1, "write_queue_count": 1}
    )
    if created.fault is not None:
        yield Finding(name, "create topic", Verdict.FAULT, created.fault, created.fix)
        return
    try:
        sent = await ask(client, f"{topic}/messages", method="POST", json={"body": {"text": text}})
        if sent.fault is not None:
            yield Finding(name, "send", Verdict.FAULT, sent.fault, sent.fix)
            return
        pulled = await ask(client, f"{topic}/queues/0/messages?offset=0&wait_seconds=3")
        if pulled.fault is not None:
            yield Finding(name, "pull", Verdict.FAULT, pulled.fault, pulled.fix)
            return
        seconds = time.perf_counter() - started_at
        assert pulled.answer is not None
        messages = pulled.answer.json()["messages"]
        if [message["body"].get("text") for message in messages] == [text]:
            detail = f"a message was sent and pulled in {seconds * 1000:.0f} ms"
            yield Finding(name, "round trip", Verdict.OK, detail)
            stored_at = datetime.fromisoformat(messages[0]["stored_at"])
            skew = (stored_at - datetime.now(UTC)).total_seconds()
            yield judge.clock(name, skew, seconds)
        else:
            yield Finding(
                name,
                "round trip",
                Verdict.FAULT,
                f"expected the sent message, found {len(messages)} other messages",
                "check the broker's log",
            )
    finally:
        deleted = await ask(client, topic, method="DELETE")
    if deleted.fault is not None:
        yield Finding(name, "delete topic", Verdict.WARNING, deleted.fault, deleted.fix)
