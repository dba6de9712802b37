"""Check the consoles that the environment names.

A console registers nowhere, because it has no credentials of its own. The doctor looks at no
address that nobody has named: it would send its credentials there.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import httpx

from eruca.cli.diagnosing import findings as judge
from eruca.cli.diagnosing.findings import Finding, Verdict, is_loopback
from eruca.cli.diagnosing.probes import ask
from eruca.contract.errors import ErucaError
from eruca.contract.policies import AccessStatus
from eruca.core.routing.services import CONSOLE

_TITLE: Final = "Eruca console"  # of its OpenAPI document


async def examined_consoles(
    client: httpx.AsyncClient, reached: dict[str, str]
) -> AsyncIterator[Finding]:
    """Yield the findings of each console; add those that answer to *reached*."""
    try:
        urls = CONSOLE.given(os.environ)
    except ErucaError as error:
        yield Finding("settings", CONSOLE.what, Verdict.FAULT, error.detail, error.fix)
        return
    if not urls:  # the service is optional
        detail = f"none is named in {CONSOLE.variable}"
        yield Finding(CONSOLE.what, "named", Verdict.OK, detail)
    for url in urls:
        probe = await ask(client, f"{url}/readyz")
        if probe.fault is not None:
            fault = f"{CONSOLE.what}: {probe.fault}"
            fix = probe.fix or CONSOLE.how_to_have_one
            yield Finding(url, "reachable", Verdict.FAULT, fault, fix)
            continue
        yield judge.answer_time(url, "reachable", probe.seconds)
        if (expires_at := probe.certificate_expires_at()) is not None:
            yield judge.certificate(url, expires_at, datetime.now(UTC))
        described = await ask(client, f"{url}/openapi.json")
        found = identity(url, described.member("info", "title"))
        yield found
        if found.verdict is not Verdict.OK:
            continue
        reached[url] = url
        status = (await ask(client, f"{url}/v1/access")).model(AccessStatus)
        yield log_in(url, has_rules=None if status is None else status.source != "none")


def identity(url: str, title: object) -> Finding:
    """Judge the title of the OpenAPI document at *url*."""
    if title == _TITLE:
        return Finding(url, "identity", Verdict.OK, CONSOLE.what)
    return Finding(
        url,
        "identity",
        Verdict.FAULT,
        f"the answer is not a {CONSOLE.what}'s",
        f"give the address of a {CONSOLE.what} in {CONSOLE.variable}",
    )


def log_in(url: str, *, has_rules: bool | None) -> Finding:
    """Judge who can log in at *url*: a key over plain HTTP is accepted on its machine only.

    Args:
        url: The console's.
        has_rules: Whether it has rules, and therefore a log-in; None: unknown.
    """
    parts = urlsplit(url)
    if has_rules is False:
        detail = "there is no log-in: everybody who reaches it sees everything"
        return Finding(url, "log-in", Verdict.OK, detail)
    if parts.scheme == "https" or is_loopback(parts.hostname or ""):
        return Finding(url, "log-in", Verdict.OK, "keys are accepted at this address")
    return Finding(
        url,
        "log-in",
        Verdict.WARNING,
        "nobody can log in at this address: over plain HTTP everybody on the way could read a key",
        "put the console behind HTTPS, set its ERUCA_CONSOLE_ADVERTISED_URL to the https:// URL, "
        f"and name that in {CONSOLE.variable}",
    )
