"""Handles of a broker group: the fence is of an epoch, which an unclean election may have lost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eruca_broker.core.consuming.lease_handles import decode_handle, encode_handle
from support.replication_pairs import client_of, leading, send

pytestmark = pytest.mark.anyio


async def test_a_handle_of_a_lost_epoch_answers_as_one_that_has_expired(tmp_path: Path) -> None:
    """Rule 12: another lease may be at the same log offset, of the same message."""
    async with leading(tmp_path, epoch=3) as master, client_of(master) as client:
        await send(client, 1)
        assert (await client.put("/groups/billing", json={"start": "earliest"})).is_success
        received = await client.post("/groups/billing/deliveries", json={"topic": "orders"})
        [delivery] = received.json()["deliveries"]
        handle = decode_handle(delivery["handle"])
        assert handle.epoch == 3

        async def ack(epoch: int) -> tuple[int, str | None]:
            text = encode_handle(msgspec.structs.replace(handle, epoch=epoch))
            answer = await client.post("/groups/billing/deliveries:ack", json={"handles": [text]})
            return answer.status_code, (answer.json() if answer.content else {}).get("code")

        for lost in (2, 4):
            assert await ack(lost) == (410, "expired-handle")
        assert (await ack(3))[0] == 204
