"""Checkers against a perfect queue: no run of it has an anomaly, and each damage of it is found.

The queue is a list. Clients send to it, under keys or not, and lose answers; readers follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chaos.checkers import check
from chaos.history import History, Operation
from chaos.made_histories import final, pull, send

Stored = list[str]


class PerfectQueue:
    """A queue that keeps every promise, and the history of its clients."""

    def __init__(self) -> None:
        self.stored: Stored = []
        self.steps: list[Operation] = []
        self._readers: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def send(self, *, fate: str, by: str) -> None:
        """Send a message; its answer arrives, is lost after or before it was stored, or refuses."""
        message = f"m{len(self.steps)}"
        at = float(len(self.steps))
        if fate in ("ok", "stored, answer lost"):
            self.stored.append(message)
        offset = len(self.stored) - 1
        outcome = {"ok": "ok", "refused": "fail"}.get(fate, "info")
        self.steps.append(send(message, offset, at=at, by=by, outcome=outcome))  # type: ignore[arg-type]

    def send_twice(self, *, by: str) -> None:
        """Send a message under a key, lose its answer, and repeat it."""
        message = f"m{len(self.steps)}"
        at = float(len(self.steps))
        self.stored.append(message)
        self.steps.append(send(message, at=at, by=by, outcome="info", key=message))
        offset = len(self.stored) - 1
        self.steps.append(send(message, offset, at=at + 0.5, by=by, key=message))

    def pull(self, *, by: str, count: int) -> None:
        """Read on."""
        at = float(len(self.steps))
        start = self._readers.get(by, 0)
        found = list(enumerate(self.stored))[start : start + count]
        self._readers[by] = start + len(found)
        self.steps.append(pull(start, *found, at=at, by=by))

    def history(self) -> History:
        """Return the history, with the final reads of three replicas."""
        finals = [final(*enumerate(self.stored), replica=replica) for replica in (1, 2, 3)]
        return History((*self.steps, *finals))


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"), st.sampled_from(["ok", "stored, answer lost", "lost", "refused"])
        ),
        st.tuples(st.just("send twice"), st.none()),
        st.tuples(st.just("pull"), st.integers(1, 4)),
    ),
    min_size=3,
    max_size=30,
)
CLIENTS = st.sampled_from(["p1", "p2"])


def queue_after(steps: Sequence[tuple[str, Any]], data: st.DataObject) -> PerfectQueue:
    queue = PerfectQueue()
    for name, argument in steps:
        client = data.draw(CLIENTS)
        if name == "send":
            queue.send(fate=argument, by=client)
        elif name == "send twice":
            queue.send_twice(by=client)
        else:
            queue.pull(by=client, count=argument)
    return queue


def found(history: History) -> set[str]:
    return {name for name, anomalies in check(history).items() if anomalies}


@given(STEPS, st.data())
def test_a_perfect_queue_has_no_anomaly(steps: list[tuple[str, Any]], data: st.DataObject) -> None:
    assert found(queue_after(steps, data).history()) == set()


@given(STEPS, st.data())
def test_an_acknowledged_message_that_is_gone_is_found(
    steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    queue = queue_after(steps, data)
    promised = [one.asked["message"] for one in queue.steps if one.op == "send" and one.is_ok]
    assume(promised)
    gone = data.draw(st.sampled_from(promised))

    assert found(without(queue.history(), gone)) & {"lost", "unseen"}


@given(STEPS, st.data())
def test_a_message_that_moved_is_found(steps: list[tuple[str, Any]], data: st.DataObject) -> None:
    """A fail-over that lost the tail gives its offsets to others (RocketMQ's issue 7689)."""
    queue = queue_after(steps, data)
    promised = [one for one in queue.steps if one.op == "send" and one.is_ok]
    assume(promised)
    moved = data.draw(st.sampled_from(promised))
    offset = moved.told["offset"]
    queue.stored.insert(offset, "usurper")

    assert "inconsistent-offset" in found(queue.history())


@given(STEPS, st.data())
def test_a_message_that_is_stored_again_is_found(
    steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    queue = queue_after(steps, data)
    assume(queue.stored)
    queue.stored.append(data.draw(st.sampled_from(queue.stored)))

    assert "duplicate" in found(queue.history())


@given(STEPS, st.data())
def test_a_refused_message_that_is_stored_is_found(
    steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    queue = queue_after(steps, data)
    refused = [one.asked["message"] for one in queue.steps if one.outcome == "fail"]
    assume(refused)
    queue.stored.append(data.draw(st.sampled_from(refused)))

    assert found(queue.history()) == {"aborted-read"}


@pytest.mark.parametrize("replica", [1, 2, 3])
@given(STEPS, st.data())
def test_a_replica_that_differs_is_found(
    replica: int, steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    queue = queue_after(steps, data)
    assume(queue.stored)
    place = data.draw(st.integers(0, len(queue.stored) - 1))
    history = queue.history()
    changed = [*enumerate(queue.stored)]
    changed[place] = (place, "another")
    others = tuple(
        one for one in history.operations if one.op != "queue" or one.asked["replica"] != replica
    )

    assert "inconsistent-offset" in found(History((*others, final(*changed, replica=replica))))


def without(history: History, gone: str) -> History:
    """Return the history of a queue in which a message never was, though it was acknowledged."""
    kept: list[Operation] = []
    for one in history.operations:
        if one.op in ("pull", "queue"):
            messages = [(o, message) for o, message in one.told["messages"] if message != gone]
            kept.append(replace(one, told={**one.told, "messages": messages}))
        else:
            kept.append(one)
    return History(tuple(kept))
