"""The arbiter over a store whose answers are lost, and whose rows change behind its back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from eruca.contract.broker_groups import BrokerGroupPut
from eruca.contract.errors import (
    ArbiterUnavailableError,
    BrokerGroupNotFoundError,
    PreconditionFailedError,
)
from eruca_chassis.admission.held import HeldPlaces
from eruca_controller.arbiter import Arbiter
from eruca_controller.core.conditions import Condition
from eruca_controller.core.rows import GroupRow
from eruca_controller.watching import GroupWatch
from support.clocks import ManualClock
from support.controllers import group

pytestmark = pytest.mark.anyio

CREATE = Condition(creates=True)
Fault = Callable[[], None]


def lost() -> None:
    raise ArbiterUnavailableError("the answer is lost")


@dataclass
class MemoryGroups:
    """A store in memory: ``before`` and ``after`` each swap something may happen."""

    rows: dict[str, list[GroupRow]] = field(default_factory=dict)
    before: list[Fault] = field(default_factory=list)
    after: list[Fault] = field(default_factory=list)

    async def read(self, broker_name: str) -> GroupRow | None:
        return self.rows[broker_name][-1] if broker_name in self.rows else None

    async def swap(self, expected: str | None, row: GroupRow) -> bool:
        if self.before:
            self.before.pop(0)()
        current = await self.read(row.broker_name)
        if expected != (None if current is None else current.version):
            return False
        self.rows.setdefault(row.broker_name, []).append(row)
        if self.after:
            self.after.pop(0)()
        return True

    async def live(self, *, after: str | None, count_max: int) -> list[GroupRow]:
        raise NotImplementedError

    async def history(
        self, broker_name: str, *, before: int | None, count_max: int
    ) -> list[GroupRow]:
        return self.rows.get(broker_name, [])[::-1]

    async def versions(self, broker_names: Collection[str]) -> dict[str, str]:
        return {name: self.rows[name][-1].version for name in broker_names if name in self.rows}

    async def count(self) -> int:
        return len(self.rows)

    async def check(self) -> None:
        pass


@pytest.fixture
def store() -> MemoryGroups:
    return MemoryGroups()


@pytest.fixture
def arbiter(store: MemoryGroups) -> Arbiter:
    watch = GroupWatch(store, poll_seconds=lambda: 1)
    return Arbiter(store, watch, HeldPlaces(maximum=1), ManualClock(), groups_max=10)


def row(*args: Any, **named: Any) -> BrokerGroupPut:  # noqa: ANN401
    return BrokerGroupPut.model_validate(group(*args, **named))


def at(version: str) -> Condition:
    return Condition(creates=False, versions=frozenset([version]))


async def test_a_swap_whose_answer_is_lost_is_recognized_when_it_is_repeated(
    arbiter: Arbiter, store: MemoryGroups
) -> None:
    first, _ = await arbiter.put("a", CREATE, row())
    store.after.append(lost)
    with pytest.raises(ArbiterUnavailableError):
        await arbiter.put("a", at(first.version), row(2))

    again, _ = await arbiter.put("a", at(first.version), row(2))

    assert again.epoch == 2
    assert len(store.rows["a"]) == 2
    assert (arbiter.counts.repeated, arbiter.counts.store_failures) == (1, 1)


async def test_a_swap_that_was_not_made_is_made_when_it_is_repeated(
    arbiter: Arbiter, store: MemoryGroups
) -> None:
    first, _ = await arbiter.put("a", CREATE, row())
    store.before.append(lost)
    with pytest.raises(ArbiterUnavailableError):
        await arbiter.put("a", at(first.version), row(2))

    again, _ = await arbiter.put("a", at(first.version), row(2))

    assert again.version == store.rows["a"][-1].version
    assert len(store.rows["a"]) == 2


async def test_a_lost_creation_and_a_lost_removal_are_told_apart_too(
    arbiter: Arbiter, store: MemoryGroups
) -> None:
    store.after.append(lost)
    with pytest.raises(ArbiterUnavailableError):
        await arbiter.put("a", CREATE, row())
    view, is_created = await arbiter.put("a", CREATE, row())
    assert is_created

    store.after.append(lost)
    with pytest.raises(ArbiterUnavailableError):
        await arbiter.remove("a", at(view.version), "me", None)
    with pytest.raises(BrokerGroupNotFoundError):
        await arbiter.remove("a", at(view.version), "me", None)
    assert [one.kind for one in store.rows["a"]] == ["created", "removed"]


async def test_another_change_between_reading_and_swapping_wins(
    arbiter: Arbiter, store: MemoryGroups
) -> None:
    first, _ = await arbiter.put("a", CREATE, row())
    other = Arbiter(
        store,
        GroupWatch(store, poll_seconds=lambda: 1),
        HeldPlaces(maximum=1),
        ManualClock(),
        groups_max=10,
    )
    theirs: list[str] = []

    def overtake() -> None:
        coroutine = other.put("a", at(first.version), row(2, by="another"))
        with pytest.raises(StopIteration) as done:  # it never waits
            coroutine.send(None)
        theirs.append(done.value.value[0].version)

    store.before.append(overtake)
    with pytest.raises(PreconditionFailedError, match=r"has version 2-"):
        await arbiter.put("a", at(first.version), row(2))

    assert store.rows["a"][-1].version == theirs[0]
    assert arbiter.counts.refused == 1


async def test_the_same_change_by_another_controller_between_reading_and_swapping_is_ours(
    arbiter: Arbiter, store: MemoryGroups
) -> None:
    """A broker that had no answer from one controller repeats its request at another."""
    first, _ = await arbiter.put("a", CREATE, row())

    def overtake() -> None:
        coroutine = arbiter.put("a", at(first.version), row(2))
        with pytest.raises(StopIteration):
            coroutine.send(None)

    store.before.append(overtake)
    view, _ = await arbiter.put("a", at(first.version), row(2))

    assert view.epoch == 2
    assert len(store.rows["a"]) == 2
