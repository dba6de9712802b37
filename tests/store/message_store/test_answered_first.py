"""The message store: a lone record, whose sender is answered before readers see it."""

from __future__ import annotations

import asyncio

import pytest

from eruca_broker.store.message_store import MessageStore
from support.message_stores import BOTH_MODES, bodies
from support.stores import batch

pytestmark = pytest.mark.anyio


class Answers:
    """Appends batches, and notes what readers see when each of them is answered."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._all_came = asyncio.Event()
        self._missing_count = 0
        self.seen: list[list[bytes]] = []

    def append(self, body: bytes, *, is_answered_first: bool) -> None:
        self._missing_count += 1
        self._store.append_then(
            batch("orders", 0, [body]), None, self._answer, is_answered_first=is_answered_first
        )

    async def all_came(self) -> None:
        await self._all_came.wait()

    def _answer(self, _: object) -> None:
        self.seen.append(bodies(self._store))
        self._missing_count -= 1
        if not self._missing_count:
            self._all_came.set()


@BOTH_MODES
async def test_the_sender_of_a_lone_record_is_answered_before_readers(store: MessageStore) -> None:
    answers = Answers(store)

    answers.append(b"lone", is_answered_first=True)
    await answers.all_came()

    assert answers.seen == [[]]
    assert bodies(store) == [b"lone"]  # the next reader sees it


@BOTH_MODES
async def test_a_sender_is_answered_once(store: MessageStore) -> None:
    answers = Answers(store)

    answers.append(b"lone", is_answered_first=True)
    await answers.all_came()
    await store.append(batch("orders", 0, [b"next"]))

    assert len(answers.seen) == 1


@BOTH_MODES
async def test_readers_come_first_if_several_batches_are_published(store: MessageStore) -> None:
    answers = Answers(store)

    answers.append(b"first", is_answered_first=True)
    answers.append(b"second", is_answered_first=True)
    await answers.all_came()

    assert answers.seen == [[b"first", b"second"]] * 2


@BOTH_MODES
async def test_a_caller_that_does_more_than_answer_comes_after_readers(store: MessageStore) -> None:
    answers = Answers(store)

    answers.append(b"lone", is_answered_first=False)
    await answers.all_came()

    assert answers.seen == [[b"lone"]]
