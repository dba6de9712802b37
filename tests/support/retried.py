"""Dead letters and committed offsets of a group whose handlers fail."""

from __future__ import annotations

import msgspec

import eruca
from eruca.contract.names import dead_letter_topic
from support.patience import PATIENCE_SECONDS
from support.push import committed


async def dead_letters(client: eruca.AsyncClient, group: str) -> list[dict[str, object]]:
    """Return the group's dead letters on all brokers."""
    view = await client.context.routes.subscribe_view(dead_letter_topic(group))
    letters: list[dict[str, object]] = []
    for urls in view.urls.values():
        answer = await client.context.transport.request(
            "GET", urls[0], f"/v1/groups/{group}/dead-letters", timeout=PATIENCE_SECONDS
        )
        assert answer.status == 200, answer.body
        letters += msgspec.json.decode(answer.body)["dead_letters"]
    return letters


async def is_committed(client: eruca.AsyncClient, topic: str, count: int) -> bool:
    return await committed(client, topic, topic) == count
