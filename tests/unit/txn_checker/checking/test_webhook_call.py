"""Calls of webhooks: what they need of TLS, and when."""

from __future__ import annotations

import threading

import pytest

from eruca_txn_checker.checking.webhook_call import WebhookCaller, WebhookFaultError
from eruca_txn_checker.core.reach import Reach
from support.authorities import watch_loading
from support.http_peers import OK, answering_anything, peer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("scheme", "is_loaded"), [("http", False), ("https", True)])
async def test_authorities_are_loaded_by_a_thread_and_for_https_alone(
    monkeypatch: pytest.MonkeyPatch, scheme: str, *, is_loaded: bool
) -> None:
    loads = watch_loading(monkeypatch)
    caller = WebhookCaller(Reach.MACHINE)
    async with peer(answering_anything(OK)) as server:
        url = server.url.replace("http:", f"{scheme}:")
        with pytest.raises(WebhookFaultError):  # what answers there is no webhook
            await caller.call(f"{url}/checks", {}, b"{}", timeout=20)
    await caller.close()

    assert bool(loads) is is_loaded
    assert threading.current_thread() not in loads
