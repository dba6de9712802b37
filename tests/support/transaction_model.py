"""The correct state of every transaction, computed from the records of the log alone.

The codec reads the log; nothing here is shared with the broker's own fold. There are models of two
readers: a reader of the events, and a RocketMQ broker, which knows only half messages and op
messages. The model of timers checks that a delayed commit is delivered once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from eruca.contract.names import (
    CHECK_MAX_TOPIC,
    EVENTS_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
)
from eruca.contract.records import Record

MESSAGE_FOLLOWS = ("transaction_begun", "transaction_parked", "transaction_carried")


class TransactionModel:
    """A fold over all records there ever were; every transaction has an id of its own."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.begun: dict[str, dict[str, Any]] = {}
        self.pending: dict[str, int] = {}  # id → checks
        self.parked: dict[str, int] = {}
        self.decided: dict[str, dict[str, Any]] = {}
        self.decided_at: dict[str, int] = {}  # id → log offset
        self.visible: Counter[str] = Counter()  # ids of what was delivered, or waits for it
        self._halves: dict[int, str] = {}  # queue offset → id
        self._finished: set[int] = set()  # … that an op message names
        event: dict[str, Any] = {}
        behind = 0
        for record in records:
            unique_id = record.property_map().get("UNIQ_KEY", "")
            if record.topic == EVENTS_TOPIC:
                event, behind = json.loads(record.body), record.log_offset + record.size
                self._fold(event, record)
            elif record.topic == HALF_TOPIC:
                assert record.log_offset == behind, "a half message without its event"
                assert event["transaction_id"] == unique_id
                self._halves[record.queue_offset] = unique_id
            elif record.topic == OP_HALF_TOPIC:
                offsets = [int(text) for text in record.body.decode().split(",") if text]
                assert len(offsets) == 1
                assert offsets[0] not in self._finished, "finished twice"
                self._finished.update(offsets)
            elif record.topic == CHECK_MAX_TOPIC:
                assert record.log_offset == behind, "a parked message without its event"
                assert event["transaction_id"] == unique_id
            elif event["event"] == "timers_fired":  # a commit that was delayed, on its way
                assert self.visible[unique_id] == 1
            else:
                assert event["event"] == "transaction_decided", (event, record)
                assert event["transaction_id"] == unique_id
                self.visible[unique_id] += 1

    @property
    def pending_for_rocketmq(self) -> list[str]:
        """The transactions that a RocketMQ broker takes for pending, by its own rules."""
        return sorted(
            unique_id for offset, unique_id in self._halves.items() if offset not in self._finished
        )

    def check(self) -> None:
        """Check that each was begun, and decided once at most; and what that made visible."""
        assert self.pending_for_rocketmq == sorted(self.pending)
        for unique_id in self.begun:
            states = (
                unique_id in self.pending,
                unique_id in self.parked,
                unique_id in self.decided,
            )
            assert sum(states) == 1, (unique_id, states)
            is_committed = self.decided.get(unique_id, {}).get("outcome") == "commit"
            assert self.visible[unique_id] == is_committed, unique_id
        assert self.visible.keys() <= self.begun.keys()

    def _fold(self, event: dict[str, Any], record: Record) -> None:
        if not event["event"].startswith("transaction_"):
            return
        unique_id = event["transaction_id"]
        assert record.property_map()["UNIQ_KEY"] == unique_id
        match event["event"].removeprefix("transaction_"):
            case "begun":
                assert unique_id not in self.begun, "begun twice"
                self.begun[unique_id] = event
                self.pending[unique_id] = 0
            case "checked":
                assert event["number"] == self.pending[unique_id] + 1, "checked out of turn"
                self.pending[unique_id] += 1
            case "decided":
                table = self.parked if event.get("was_parked") else self.pending
                assert table.pop(unique_id) == event["checks"]
                assert unique_id not in self.decided, "decided twice"
                self.decided[unique_id] = event
                self.decided_at[unique_id] = record.log_offset
            case "parked":
                self.parked[unique_id] = self.pending.pop(unique_id)
            case "carried":
                table = self.pending if event["parked_at"] is None else self.parked
                assert table[unique_id] == event["checks"]
