"""Vectors of consumption: what becomes of a batch, concurrent and orderly.

The vectors tell events in order. Here the pure parts are called as the consumer calls them, and
what it would do at the edge (send back, wait, commit) is written down as an event. The orderly
vectors' counts of successes and failures are statistics, which decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eruca.contract.names import retry_topic
from eruca.core.consuming import concurrent_result, orderly_result
from eruca.core.consuming.concurrent_result import acknowledged_count, settle, to_send_back
from eruca.core.consuming.consume_status import ConsumeStatus, status_of
from eruca.core.consuming.ordered_queue import OrderedQueue
from eruca.core.consuming.orderly_result import Action, Gate
from support.queued import QueuedMessage, filled, offsets_of, queued

_STATUSES: Final = {
    "CONSUME_SUCCESS": ConsumeStatus.SUCCESS,
    "SUCCESS": ConsumeStatus.SUCCESS,
    "RECONSUME_LATER": ConsumeStatus.RECONSUME_LATER,
    "SUSPEND_CURRENT_QUEUE_A_MOMENT": ConsumeStatus.SUSPEND,
    "COMMIT": ConsumeStatus.COMMIT,
    "ROLLBACK": ConsumeStatus.ROLLBACK,
}
_FAILURES: Final = ("NULL", "EXCEPTION")
_LOCK_SECONDS: Final = 30.0
_GROUP: Final = "GID_a"


def _status(word: str, *, is_orderly: bool) -> ConsumeStatus:
    if word == "EXCEPTION":
        return ConsumeStatus.SUSPEND if is_orderly else ConsumeStatus.RECONSUME_LATER
    returned = None if word == "NULL" else _STATUSES[word]
    status = status_of(returned, is_orderly=is_orderly, none_is_failure=True)
    assert status is not None
    return status


# --- concurrent -----------------------------------------------------------------------------------


def run_batch_result(case: dict[str, Any]) -> None:
    messages = {offset: QueuedMessage(offset) for offset in case["queue_offsets"]}
    for offset, times in case["batch"]:
        messages[offset].reconsume_times = times
    queue = filled(messages.values())
    queue.remove([messages[offset] for offset in case["removed_from_queue_before"] or ()])
    batch = [messages[offset] for offset, _ in case["batch"]]
    events: list[dict[str, Any]] = []
    done, failed = 0, 0

    if not case["queue_dropped_during_consume"]:
        status = _status(case["listener_result"], is_orderly=False)
        was_empty = queue.count == 0
        done = acknowledged_count(status, case["ack_index"], len(batch))
        failed = len(batch) - done
        level = case["delay_level_when_next_consume"]
        again = []
        for message in to_send_back(queue, batch[done:], case["message_model"].lower()):
            fails = message.queue_offset in (case["send_back_fails_for"] or ())
            name = "send_back_failed" if fails else "send_back"
            events.append({"event": name, "offset": message.queue_offset, "delay_level": level})
            if fails:
                message.reconsume_times += 1
                again.append(message)
        settle(queue, batch, again)
        if again:
            wait = int(concurrent_result.AGAIN_SECONDS * 1000)
            events.append({"event": "schedule_after_ms", "ms": wait})
        if not was_empty:
            events.append(_commit(queue.commit_offset, increase_only=True))

    assert events == case["expected_events"]
    assert queue.offsets == case["expected_queue_offsets_after"]
    times = [[message.queue_offset, message.reconsume_times] for message in batch]
    assert times == case["expected_reconsume_times_after"]
    assert (done, failed) == (case["expected_ok_count"], case["expected_failed_count"])


def run_progress(case: dict[str, Any]) -> None:
    messages = {offset: QueuedMessage(offset) for offset in case["queue_offsets"]}
    queue = filled(messages.values())

    committed = []
    for offset in case["completion_order"]:
        settle(queue, [messages[offset]], [])
        committed.append(queue.commit_offset)

    assert committed == case["expected_committed_after_each"]


# --- orderly --------------------------------------------------------------------------------------


class _OrderlyQueue:
    """One queue, consumed as the orderly consumer does, with every outside act written down."""

    def __init__(self, messages: list[QueuedMessage], case: dict[str, Any]) -> None:
        self.held = filled(messages)
        self.queue: OrderedQueue[QueuedMessage] = OrderedQueue(self.held)
        self.queue.add(messages)
        self.events: list[dict[str, Any]] = []
        self._auto_commit: bool = case.get("auto_commit", True)
        limit = case.get("consumer_max_reconsume_times", -1)
        self._limit: int | None = None if limit < 0 else limit
        self._send_back_succeeds: bool = case.get("send_back_succeeds", True)
        self._is_dropped: bool = case.get("queue_dropped", False)
        asked = case.get("context_suspend_ms", -1)
        self._asked = None if asked < 0 else asked / 1000
        self._default = case.get("consumer_suspend_ms", 1000) / 1000

    def finish(self, batch: list[QueuedMessage], status: ConsumeStatus) -> bool:
        """Do what *status* asks for; tell whether the queue goes on at once."""
        action = orderly_result.action_of(status, auto_commit=self._auto_commit)
        if action is Action.PUT_BACK and not self._count_retries(batch):
            action = orderly_result.action_if_all_dead(auto_commit=self._auto_commit)
        if action is Action.COMMIT:
            self.queue.commit(batch)
            if not self._is_dropped:
                self.events.append(_commit(self.held.commit_offset, increase_only=False))
        elif action is Action.PUT_BACK:
            self.queue.put_back(batch)
        elif action is Action.ROLL_BACK:
            self.queue.roll_back()
        if action in (Action.COMMIT, Action.KEEP):
            return True
        seconds = orderly_result.suspend_seconds(self._asked, self._default)
        self._wait(seconds)
        return False

    def _count_retries(self, batch: list[QueuedMessage]) -> bool:
        """Count a further retry of each; tell whether any must be handled again."""
        stays = False
        for message in batch:
            times = message.reconsume_times
            if orderly_result.is_exhausted(times, self._limit):
                name = "send_back" if self._send_back_succeeds else "send_back_failed"
                self.events.append(
                    {
                        "event": name,
                        "topic": retry_topic(_GROUP),
                        "delay_level": 3 + times,
                        "reconsume_property": str(times + 1),
                        "max_reconsume_property": str(self._limit),
                        "offset": message.queue_offset,
                    }
                )
                if self._send_back_succeeds:
                    continue
            message.reconsume_times += 1
            stays = True
        return stays

    def _wait(self, seconds: float) -> None:
        self.events.append({"event": "schedule_after_ms", "ms": round(seconds * 1000)})

    def consume(self, count: int, outcome: str) -> bool:
        batch = self.queue.take(count, now=0.0)
        pairs = [[message.queue_offset, message.reconsume_times] for message in batch]
        self.events.append({"event": "consume", "batch": pairs, "outcome": outcome})
        return self.finish(batch, _status(outcome, is_orderly=True))


def run_process_result(case: dict[str, Any]) -> None:
    messages = [QueuedMessage(offset, reconsume_times=times) for offset, times in case["queue"]]
    run = _OrderlyQueue(messages, case)
    run.queue.take(len(case["taken_but_uncommitted_before"]), now=0.0)
    batch = run.queue.take(len(case["batch"]), now=0.0)
    assert offsets_of(batch) == case["batch"]
    status = _STATUSES[case["status"]]

    goes_on = run.finish(batch, status)

    assert goes_on == case["expected_continue"]
    assert run.events == case["expected_events"]
    assert offsets_of(run.queue.waiting) == case["expected_waiting_offsets"]
    assert offsets_of(run.queue.uncommitted) == case["expected_uncommitted_offsets"]
    times = [[message.queue_offset, message.reconsume_times] for message in batch]
    assert times == case["expected_batch_reconsume_times"]


def run_run(case: dict[str, Any]) -> None:
    run = _OrderlyQueue(queued(*case["offsets"]), case)
    script = list(case["script"])

    while run.queue.ready_at() is not None:
        outcome = script.pop(0) if script else case["script_exhausted_outcome"]
        run.consume(case["batch_max_size"], outcome)

    assert run.events == case["expected_events"]
    assert offsets_of(run.queue.waiting) == case["expected_waiting_offsets"]
    assert offsets_of(run.queue.uncommitted) == case["expected_uncommitted_offsets"]


def run_gate(case: dict[str, Any]) -> None:
    run = _OrderlyQueue(queued(5), case)

    gate = orderly_result.gate(
        case["message_model"].lower(),
        is_dropped=case["queue_dropped"],
        is_locked=case["locked"],
        lock_age_seconds=case["lock_age_ms"] / 1000,
        lock_seconds=_LOCK_SECONDS,
    )
    if gate is Gate.OPEN:
        run.consume(1, "SUCCESS")
    elif gate is Gate.WAIT:
        run._wait(orderly_result.LOCK_LOOK_SECONDS)

    assert run.events == case["expected_events"]


def run_continuous_limit(case: dict[str, Any]) -> None:
    run = _OrderlyQueue(queued(*case["offsets"]), case)

    seconds = 0.0
    while run.queue.ready_at() is not None:
        if orderly_result.must_step_back(seconds):
            run._wait(orderly_result.TURN_SECONDS)
            break
        run.consume(case["batch_max_size"], "SUCCESS")
        seconds += case["each_consume_takes_ms"] / 1000

    assert run.events == case["expected_events"]


def _commit(offset: int, *, increase_only: bool) -> dict[str, Any]:
    return {"event": "commit_offset", "offset": offset, "increase_only": increase_only}


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "concurrently_ackindex/batch_result": run_batch_result,
    "concurrently_ackindex/progress": run_progress,
    "orderly_status/process_result": run_process_result,
    "orderly_status/run": run_run,
    "orderly_status/gate": run_gate,
    "orderly_status/continuous_limit": run_continuous_limit,
}
