"""A local cluster for tests that are not async: it runs on an event loop of its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from eruca_deploy.cluster import LocalCluster

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
        yield cluster
    finally:
        asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result(_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
