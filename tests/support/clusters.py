"""A local cluster for tests that are not async: it runs on an event loop of its own thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

import eruca
from deploy.cluster import LocalCluster
from eruca.contract.names import CHECKERS_NAMESPACE, QUERY_SERVICES_NAMESPACE

SMALL_STORE = {"ERUCA_BROKER_SEGMENT_SIZE": str(16 * 1024 * 1024)}
_SECONDS = 100.0


@contextmanager
def running_cluster(
    *,
    brokers: int = 1,
    namesrvs: int = 1,
    txn_checkers: int = 0,
    queries: int = 0,
    settings: Mapping[str, str] = SMALL_STORE,
) -> Iterator[LocalCluster]:
    """Yield a running cluster on free ports, with temporary data; stop it at the end."""
    cluster = LocalCluster(
        brokers=brokers,
        namesrvs=namesrvs,
        txn_checkers=txn_checkers,
        queries=queries,
        settings=settings,
    )
    loop = asyncio.new_event_loop()
    # A daemon: a test session that is broken off must not wait for it.
    thread = threading.Thread(target=loop.run_forever, name="cluster", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(cluster.start(), loop).result(_SECONDS)
        _wait_until_at_work(cluster, CHECKERS_NAMESPACE, txn_checkers)
        _wait_until_at_work(cluster, QUERY_SERVICES_NAMESPACE, queries)
        yield cluster
    finally:
        asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result(_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _wait_until_at_work(cluster: LocalCluster, namespace: str, count: int) -> None:
    """Return when clients can find the instances of a service, and they read every broker's log.

    Each turn is a request or two. An instance says where it is under its name, and its status names
    all brokers whose logs are read by one of its kind.
    """
    deadline = time.monotonic() + _SECONDS
    brokers = {broker.name for broker in cluster.plan.brokers}
    with eruca.Client(cluster.namesrv_urls) as client:
        while len(found := client.admin.list_kv(namespace)) < count:
            assert time.monotonic() < deadline, f"nobody is announced in {namespace}"
    for url in found.values():
        while not brokers <= _followed(url):
            assert time.monotonic() < deadline, f"{url} does not follow all of {sorted(brokers)}"


def _followed(service_url: str) -> set[str]:
    followed = httpx.get(f"{service_url}/v1/status", trust_env=False).json()["followed"]
    return {log["broker_name"] for log in followed if log["followed_by"] is not None}
