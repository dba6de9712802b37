"""Vectors of transaction checks: RocketMQ's check pass, played with Eruca's rules.

RocketMQ keeps a half message undecided by appending it again, and learns what is decided from op
messages; Eruca has events for both. So the pass itself, its queues and its notes on them are played
here, and every decision about a half message is the product's. The two consumer offsets of the
cases are one: the queues they were made with kept a single offset for both, which the cases call
that of the op queue.

Source: RocketMQ 5.3, ``TransactionalMessageServiceImpl.check``, ``fillOpRemoveMap``,
``checkPrepareQueueOffset``, ``calculateOpOffset``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from eruca.contract.properties import (
    TRANSACTION_ID,
    decode_properties,
    encode_properties,
)
from eruca.contract.records import Host, Record, SysFlag, encode_record
from eruca_broker.core.records.half_messages import finished_offsets, half_message
from eruca_broker.core.records.scheduled import Destination
from eruca_txn_checker.core.check_rules import CheckRules, Verdict, verdict
from support.records import decode_draft
from support.rocketmq_service_rules import immunity_ms_of

OP_PULL_COUNT: Final = 32  # op messages read at a time
WAIT_COUNT_MAX: Final = 60  # RocketMQ's passes end after 60 s, and each wait takes one
V4_HOST: Final = Host.from_text("127.0.0.1:1")
V6_HOST: Final = Host.from_text("[::1]:1")
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_NO_NUMBER: Final = -1  # what RocketMQ reads where a property is no number
GROUP: Final = "PGROUP"  # all half messages of the cases are of one group


@dataclass
class Half:
    """A half message in its queue."""

    age_ms: int
    store_age_ms: int
    check_times: str | None = None
    immunity_seconds: str | None = None
    prepared_queue_offset: str | None = None


@dataclass
class CheckPass:
    """One pass over the half queue, and what it did."""

    case: dict[str, Any]
    actions: list[dict[str, Any]] = field(default_factory=list)
    waits: int = 0

    def __post_init__(self) -> None:
        case = self.case
        self.rules = CheckRules(
            timeout_ms=case["transaction_timeout_ms"],
            checks_max=case["check_max"],
            age_max_ms=case["file_reserved_hours"] * 3_600_000,
        )
        self.halves = [
            Half(**{name: value for name, value in half.items() if name != "offset"})
            for half in case["half_messages"]
        ]
        self.start = self.offset = case["op_consume_offset"]
        self.finished_by: dict[int, int] = {}  # half offset -> offset of the op message
        self.unfinished: dict[int, set[int]] = {}  # op offset -> half offsets it still counts for
        self.done_ops: list[int] = []
        self.next_op = self.start

    def run(self) -> None:
        """Look at one half message after the other."""
        ops = self.read_ops()
        at = self.start
        while at < len(self.halves) or at in self.finished_by:
            if at in self.finished_by:
                self.finish(at)
            elif (outcome := self.look(at, ops)) == "stop":
                break
            elif outcome == "more ops":
                ops = self.read_ops()
                self.waits += not ops
                assert self.waits <= WAIT_COUNT_MAX, "nothing that this pass waits for can come"
                continue
            at += 1
        self.offset = at
        self.note_ops()

    def look(self, at: int, ops: list[dict[str, Any]]) -> str:
        """Decide about the half message at *at*."""
        half = replace(self.halves[at])  # counting changes what is stored only if it is put back
        checks = None if half.check_times is None else _number(half.check_times, _INT_MAX)
        own = immunity_ms_of(half.immunity_seconds, self.rules)
        result = verdict(half.age_ms, checks=checks, own_immunity_ms=own, rules=self.rules)
        if checks is None or checks < self.rules.checks_max:
            half.check_times = str((checks or 0) + 1)
        if result is Verdict.GIVE_UP:
            self.act("discard", half, half_offset=at)
            return "next"
        if half.store_age_ms <= 0 or result is Verdict.IMMUNE:
            return "stop"
        first = half.prepared_queue_offset
        # With a note that is no offset RocketMQ does not put the copy back, and asks at once.
        is_postponed = first is None or _number(first, _LONG_MAX) != _NO_NUMBER
        if result is Verdict.IMMUNE_BY_WISH and is_postponed:
            return self.postpone(at, half)
        immunity_ms = self.rules.timeout_ms if own is None else own
        newest_ms = -ops[-1]["age_ms"] if ops else 0  # after the start of the pass
        if (not ops and half.age_ms > immunity_ms) or newest_ms > self.rules.timeout_ms:
            return self.check(half)
        return self.check(half) if half.age_ms <= -1 else "more ops"

    def check(self, half: Half) -> str:
        again = self.append(half)
        self.act("requeue_for_check", half, new_half_offset=again)
        self.actions.append(
            {"action": "ask_producer", "half_offset": again, "born_age_ms": half.age_ms}
        )
        return "next"

    def postpone(self, at: int, half: Half) -> str:
        """Put an immune half message back, unless an op message is known for its first copy."""
        first = half.prepared_queue_offset
        if first is not None and (known := _number(first, _LONG_MAX)) in self.finished_by:
            self.finish(known)
            return "next"
        half.prepared_queue_offset = str(at) if first is None else first
        self.act("requeue_immune", half, new_half_offset=self.append(half))
        return "next"

    def append(self, half: Half) -> int:
        self.halves.append(replace(half, store_age_ms=0))
        return len(self.halves) - 1

    def act(self, action: str, half: Half, **where: int) -> None:
        told = {"action": action, **where, "check_times_property": half.check_times}
        if half.prepared_queue_offset is not None and action != "discard":
            told["prepared_queue_offset_property"] = half.prepared_queue_offset
        self.actions.append(told)

    def read_ops(self) -> list[dict[str, Any]]:
        """Read further op messages, and note which half messages they finish."""
        found: list[dict[str, Any]] = self.case["op_messages"][self.next_op :][:OP_PULL_COUNT]
        for op in found:
            counted = {
                offset for offset in finished_offsets(op["body"].encode()) if offset >= self.start
            }
            self.finished_by |= dict.fromkeys(counted, op["offset"])
            if counted:
                self.unfinished[op["offset"]] = counted
            else:
                self.done_ops.append(op["offset"])
        self.next_op += len(found)
        return found

    def finish(self, half_offset: int) -> None:
        op = self.finished_by.pop(half_offset)
        self.unfinished[op].discard(half_offset)
        if not self.unfinished[op]:
            self.done_ops.append(op)

    def note_ops(self) -> None:
        """Note how far the op queue is done with, where the other offset was noted before."""
        done = self.start
        while done in self.done_ops:
            done += 1
        if done != self.start:
            self.offset = done


def _number(text: str, largest: int) -> int:
    """Return what Java reads: a whole number within its type's bounds; -1 for any other text."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or not -largest - 1 <= (number := int(text)) <= largest:
        return _NO_NUMBER
    return number


def run_pass(case: dict[str, Any]) -> None:
    played = CheckPass(case)

    played.run()

    assert played.actions == case["expected_actions"]
    assert played.offset == case["expected_op_consume_offset"]
    assert case["half_consume_offset"] == case["expected_half_consume_offset"]
    assert len(played.halves) == case["expected_half_queue_length"]
    assert played.waits == case["expected_waits_for_op"]


def run_prepare(case: dict[str, Any]) -> None:
    sys_flag = SysFlag(case["sys_flag"])
    raw = encode_record(
        Record(
            topic=case["topic"],
            queue_id=case["queue_id"],
            body=b"body",
            sys_flag=sys_flag,
            born_host=V6_HOST if SysFlag.BORN_HOST_V6 in sys_flag else V4_HOST,
            store_host=V6_HOST if SysFlag.STORE_HOST_V6 in sys_flag else V4_HOST,
            properties=encode_properties(case["properties"] or {}),
        )
    )

    half = decode_draft(
        half_message(
            raw,
            Destination(case["topic"], case["queue_id"]),
            transaction_id=case["properties"]["UNIQ_KEY"],
            producer_group=GROUP,
        )
    )

    properties = decode_properties(half.properties)
    assert (half.topic, half.queue_id) == (case["expected_topic"], case["expected_queue_id"])
    assert half.sys_flag == case["expected_sys_flag"]
    assert properties.items() >= case["expected_properties"].items()
    assert properties[TRANSACTION_ID] == case["properties"]["UNIQ_KEY"]


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "transaction_check/single": run_pass,
    "transaction_check/with_op": run_pass,
    "transaction_check/queue": run_pass,
    "transaction_check/prepare": run_prepare,
}
