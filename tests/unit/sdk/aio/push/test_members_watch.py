"""Watching who is in the group: changes are known at once, and nobody is asked without end."""

from __future__ import annotations

import pytest

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.http.transport import HttpResponse
from eruca.aio.push.background import Background
from eruca.aio.push.members_watch import MembersWatch
from support.scripted_transport import Request, ScriptedTransport, json_answer
from support.waiting import stays, until

pytestmark = pytest.mark.anyio

_NOBODY = {"group": "billing", "generation": 1, "subscription_version": 1, "members": []}


async def test_a_cache_that_says_at_once_that_nothing_has_changed_is_not_asked_without_end() -> (
    None
):
    async def answer(request: Request) -> HttpResponse:
        if "if-none-match" in request.headers:
            return HttpResponse(304, {}, b"")
        return json_answer(_NOBODY, etag='"1"')

    failures: list[BaseException] = []
    background = Background(failures.append)
    transport = ScriptedTransport(answer)
    api = GroupApi(transport, "billing", client_id="me", incarnation="1", timeout=20)
    watch = MembersWatch(api, lambda _: "http://a", lambda: None, background)

    watch.follow(["a"])
    await until(lambda: watch.members("a") is not None)
    await until(lambda: len(transport.requests) == 2)

    await stays(lambda: len(transport.requests) == 2)
    await background.close()
    assert failures == []
