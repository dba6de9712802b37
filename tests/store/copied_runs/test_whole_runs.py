"""Runs that are found in bytes of the log: a replica's store takes each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.log.whole_run import run_size
from support.replication_pairs import client_of, leading, send, standing_by
from support.transaction_calls import begin, done

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("step", [700, 5_000, 40_000, 150_000])
async def test_a_log_is_copied_in_runs_whatever_bytes_are_there(tmp_path: Path, step: int) -> None:
    async with (
        leading(tmp_path / "first") as master,
        client_of(master) as client,
        standing_by(tmp_path / "second") as replica,
    ):
        queues = {"read_queue_count": 2, "write_queue_count": 2}
        assert (await client.put("/topics/payments", json=queues)).is_success
        for _ in range(6):
            await send(client, 30)
            begun = await begin(client, message={"body": {"text": "y" * 400}})
            await done(client, begun["transaction_id"], "commit")
        log, store = master.store, replica.store
        whole = b"".join(log.log.pieces(log.log_min_offset, log.log_max_offset))
        store.role.begin_at(log.log_min_offset, segment_bytes=log.segment_bytes)
        buffer, given = bytearray(), 0
        runs = 0
        while given < len(whole):
            buffer += whole[given : given + step]
            given += step
            room = log.segment_bytes - store.log_max_offset % log.segment_bytes
            size = run_size(buffer, room=room, segment_bytes=log.segment_bytes)
            if size:
                await store.role.copy(memoryview(bytearray(buffer[:size])), store.log_max_offset)
                store.role.confirm(store.log_max_offset)
                del buffer[:size]
                runs += 1

        assert store.log_max_offset == log.log_max_offset
        assert runs > 1
        assert store.state.epochs == log.state.epochs


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(RefusedRunError):
        run_size(bytearray(b"\x01" * 200), room=1_000, segment_bytes=1_000)
