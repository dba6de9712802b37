"""Rows under way when sending is broken off, with a broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

import eruca
from eruca.cli.sending import sending
from eruca.cli.sending.delays import Delay
from eruca.cli.sending.rows import BadRow, Row
from eruca_testing import InMemoryBroker


def test_what_is_stored_after_ctrl_c_is_counted(
    eruca_broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_WINDOW", 1)  # so that it waits for the first of two

    counted = asyncio.run(broken_off(eruca_broker))

    assert counted == len(eruca_broker.messages("t-broken-off")) == 2


async def broken_off(eruca_broker: InMemoryBroker) -> int:
    """Send two rows, be broken off while the broker is away, and return how many it counted."""
    rows = [Row(number, b"a row", None, (), None, {}) for number in (1, 2)]
    handed_out = asyncio.Event()

    async def batches() -> AsyncGenerator[list[Row | BadRow], None]:
        yield [rows[0]]
        handed_out.set()
        yield [rows[1]]

    async with eruca.AsyncClient(eruca_broker.namesrv_urls) as client:
        await client.admin.create_topic("t-broken-off")
        sender = sending.RowSender(
            client,
            "t-broken-off",
            delay=Delay(),
            skip_errors=False,
            on_bad_row=lambda _: None,
            on_progress=lambda _: None,
        )
        with eruca_broker.away():
            send = asyncio.create_task(sender.send(batches()))
            await handed_out.wait()
            for _ in range(100):  # turns of the loop: nothing but the broker is waited for
                await asyncio.sleep(0)
            send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send

    return sender.counts.sent
