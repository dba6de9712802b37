"""Members and locks beside a small model: whatever happens, a queue has one reader.

The model knows what each process believes: which tokens it has, and until when its session lasts by
its own count. The broker is the real one over a real store, which is closed and opened, or left as
a crash leaves it, at any moment. Time passes only by a rule.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.group_members import TestMember

T = TypeVar("T")
QUEUE_COUNT = 2
queue_ids = st.integers(0, QUEUE_COUNT - 1)
MESSAGE_COUNT = 20  # in each queue, or there would be nothing to commit
offsets = st.integers(0, MESSAGE_COUNT)


@dataclass
class Process:
    """A client process, and what it believes."""

    member: TestMember
    is_static: bool
    session_ends: float = 0.0  # by its own count
    believed: dict[int, int] = field(default_factory=dict)  # queue → token
    last: dict[int, int] = field(default_factory=dict)  # the last it ever had


class GroupMachine(RuleBasedStateMachine):
    """Four processes, of which two have one static client id, and two queues."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.root = Path(tempfile.mkdtemp())
        self.runs = 0
        self.latest: dict[int, int] = dict.fromkeys(range(QUEUE_COUNT), -1)  # queue → token
        self.committed: dict[int, int] = {}
        self.generation = -1
        self.stack = AsyncExitStack()
        self.open(self.root / "0")
        counts = {"read_queue_count": QUEUE_COUNT, "write_queue_count": QUEUE_COUNT}
        self.run(self.client.put("/topics/orders", json=counts))
        messages = {"messages": [{"body": {"text": "x"}}] * MESSAGE_COUNT}
        for queue_id in range(QUEUE_COUNT):
            url = f"/topics/orders/messages?queue_id={queue_id}"
            self.run(self.client.post(url, json=messages))
        self.run(self.client.put("/groups/g", json={"start": "earliest"}))
        self.processes = [
            Process(TestMember(self.client, name, incarnation), is_static=name == "s")
            for name, incarnation in (("a", "1"), ("b", "1"), ("s", "1"), ("s", "2"))
        ]

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def open(self, directory: Path) -> None:
        self.directory = directory
        self.app = self.run(self.stack.enter_async_context(open_broker(directory, self.clock)))
        self.client = self.run(self.stack.enter_async_context(client_of(self.app)))

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.run(self.stack.aclose())
            self.loop.close()
            shutil.rmtree(self.root)

    # --- What processes do ------------------------------------------------------------------------

    @rule(index=st.integers(0, 3), session_seconds=st.sampled_from([3, 10]))
    def heartbeat(self, index: int, session_seconds: int) -> None:
        process = self.processes[index]
        now = self.clock.monotonic()
        answer = self.run(
            process.member.beat(
                session_seconds=session_seconds,
                is_static=process.is_static,
                locks=[
                    {"topic": "orders", "queue_id": queue_id, "token": token}
                    for queue_id, token in process.believed.items()
                ],
            )
        )
        if answer.status_code >= 300:
            return
        for twin in self.processes:
            if twin.member.name == process.member.name and twin is not process:
                twin.session_ends = 0.0  # its place is taken; it is fenced, and will learn that
                twin.believed.clear()
        process.session_ends = now + session_seconds
        for lost in answer.json()["lost_locks"]:
            process.believed.pop(lost["queue_id"])

    @rule(index=st.integers(0, 3), wanted=st.sets(queue_ids, min_size=1))
    def come_and_lock(self, index: int, wanted: set[int]) -> None:
        self.heartbeat(index, 10)
        self.lock(index, wanted)

    @rule(index=st.integers(0, 3), wanted=st.sets(queue_ids, min_size=1))
    def lock(self, index: int, wanted: set[int]) -> None:
        process = self.processes[index]
        answer = self.run(process.member.lock(*wanted))
        if answer.status_code != 200:
            return
        now = self.clock.monotonic()
        for lock in answer.json()["locks"]:
            queue_id, token = lock["queue_id"], lock["token"]
            for other in self.processes:
                believes = queue_id in other.believed and other.session_ends > now
                assert other is process or not believes, "two readers of one queue"
            assert token >= self.latest[queue_id]
            if token == self.latest[queue_id]:
                # It was the last holder; or it has taken over, or the queue was reset meanwhile.
                assert all(p.last.get(queue_id) != token or p is process for p in self.processes)
            self.latest[queue_id] = token
            process.believed[queue_id] = process.last[queue_id] = token
            assert lock["next_offset"] == self.committed.get(queue_id, 0)

    @rule(index=st.integers(0, 3), queue_id=queue_ids, offset=offsets)
    def commit(self, index: int, queue_id: int, offset: int) -> None:
        process = self.processes[index]
        if queue_id not in process.last:
            return
        token = process.member.tokens["orders", queue_id] = process.last[queue_id]
        answer = self.run(process.member.commit((queue_id, offset)))
        if answer.status_code == 204:
            assert token == self.latest[queue_id], "a stale token could commit"
            self.committed[queue_id] = offset
        else:
            assert answer.json()["code"] == "stale-lock"
            if self._surely_holds(process, queue_id):
                raise AssertionError(answer.json()["detail"])

    @rule(index=st.integers(0, 3), queue_id=queue_ids, offset=st.none() | offsets)
    def release(self, index: int, queue_id: int, offset: int | None) -> None:
        process = self.processes[index]
        if queue_id not in process.last:
            return
        process.member.tokens["orders", queue_id] = process.last[queue_id]
        answer = self.run(process.member.release((queue_id, offset)))
        if answer.status_code == 204:
            assert process.last[queue_id] == self.latest[queue_id], "a stale token could release"
            process.believed.pop(queue_id, None)
            if offset is not None:
                self.committed[queue_id] = offset
        else:
            assert not self._surely_holds(process, queue_id)

    @rule(index=st.integers(0, 3))
    def leave(self, index: int) -> None:
        process = self.processes[index]
        if self.run(process.member.leave()).status_code == 204:
            process.session_ends = 0.0
            process.believed.clear()

    @rule(queue_id=queue_ids)
    def reset(self, queue_id: int) -> None:
        body = {"topic": "orders", "to": "earliest", "queue_ids": [queue_id]}
        assert self.run(self.client.post("/groups/g/offsets:reset", json=body)).status_code == 200
        self.committed[queue_id] = 0
        for process in self.processes:
            process.believed.pop(queue_id, None)  # its token is stale; it will learn that
        if self.latest[queue_id] >= 0:
            self.latest[queue_id] += 1  # none that was ever given is the latest

    # --- What happens to them and the broker ------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 2.0, 3.0, 8.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def sessions_end(self) -> None:
        self.run(broker_of(self.app).members.expiry_step())

    @rule(is_crash=st.booleans())
    def restart(self, is_crash: bool) -> None:
        self.runs += 1
        directory = self.directory
        if is_crash:
            directory = self.root / str(self.runs)
            # As the kernel has it now, but for files that are being written to be renamed.
            shutil.copytree(self.directory, directory, ignore=shutil.ignore_patterns("*.new"))
        self.run(self.stack.aclose())
        self.open(directory)
        for process in self.processes:
            process.member.client = self.client

    # --- What always holds ------------------------------------------------------------------------

    @invariant()
    def offsets_are_those_committed(self) -> None:
        if not hasattr(self, "processes"):
            return
        answer = self.run(self.client.get("/groups/g/offsets?topic=orders")).json()
        known = {o["queue_id"]: o["committed_offset"] for o in answer["offsets"]}
        assert known == {q: self.committed.get(q) for q in range(QUEUE_COUNT)}

    @invariant()
    def generations_only_grow(self) -> None:
        if not hasattr(self, "processes"):
            return
        generation = self.run(self.client.get("/groups/g/members")).json()["generation"]
        assert generation >= self.generation
        self.generation = generation

    def _surely_holds(self, process: Process, queue_id: int) -> bool:
        return (
            process.believed.get(queue_id) == self.latest[queue_id]
            and process.session_ends > self.clock.monotonic()
        )


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
