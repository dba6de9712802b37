"""Dead letters of a group, over all brokers: looking at them, and sending them on once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from eruca.aio.cluster.group_api import group_path, unknown_group
from eruca.aio.cluster.masters import Masters, answered, on_those_that_know
from eruca.aio.cluster.requests import checked_request
from eruca.aio.http.transport import target_of
from eruca.contract.errors import ErucaError, ValidationError
from eruca.contract.limits import LIST_LIMIT_MAX, REDRIVE_COUNT_MAX
from eruca.contract.retries import (
    DeadLetter,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterList,
    Redrive,
    RedriveAnswer,
    RedriveOutcome,
)
from eruca.core.checked_names import check_group, check_topic
from eruca.core.checked_numbers import check_above_zero


@dataclass(frozen=True, slots=True)
class HeldDeadLetter:
    """A dead letter, and the broker that has it."""

    broker_name: str
    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of a dead letter at a broker."""

    broker_name: str
    outcome: RedriveOutcome


class DeadLetters:
    """Dead letters at the brokers of one cluster.

    What its methods take and raise is said in :class:`eruca.aio.group_admin.AsyncGroupAdmin`.
    """

    def __init__(self, masters: Masters) -> None:
        self._masters = masters

    async def of_group(
        self,
        group: str,
        *,
        topic: str | None,
        reason: str | None,
        begin: datetime | None,
        end: datetime | None,
        unanswered: dict[str, ErucaError] | None,
    ) -> AsyncIterator[HeldDeadLetter]:
        """Iterate over what *group* gave up on, broker by broker, oldest first."""
        if topic is not None:
            check_topic(topic)
        chosen = {
            "topic": topic,
            "reason": reason,
            "from_": None if begin is None else begin.isoformat(),
            "to": None if end is None else end.isoformat(),
        }
        urls = await self._brokers_of(group, unanswered)
        for broker_name, url in sorted(urls.items()):
            letters = self._at(url, group, chosen)
            async for letter in answered(broker_name, letters, unanswered):
                yield HeldDeadLetter(broker_name, letter)

    async def get(self, group: str, broker_name: str, dead_letter_id: int) -> DeadLetterDetail:
        """Return one dead letter with its message."""
        check_group(group)
        url = (await self._masters.all(None, broker_name))[broker_name]
        target = f"{group_path(group)}/dead-letters/{dead_letter_id}"
        return await self._masters.call(DeadLetterDetail, "GET", url, target)

    async def redrive(
        self,
        group: str,
        *,
        ids: Mapping[str, Sequence[int]] | None,
        topic: str | None,
        reason: str | None,
        begin: datetime | None,
        end: datetime | None,
        per_second: float | None,
        dry_run: bool,
    ) -> AsyncIterator[Redriven]:
        """Send dead letters to where they came from, and iterate over what became of each."""
        if topic is not None:
            check_topic(topic)
        if per_second is not None:
            check_above_zero("per_second", per_second)
        urls = await self._brokers_of(group)
        unknown = sorted((ids or {}).keys() - urls.keys())
        if unknown:
            raise ValidationError(f"ids: {unknown[0]} is no live broker that knows {group}")
        limit = (
            REDRIVE_COUNT_MAX
            if per_second is None
            else max(1, int(min(per_second, REDRIVE_COUNT_MAX)))
        )
        with checked_request():
            chosen = DeadLetterFilter.model_validate(
                {"topic": topic, "reason": reason, "from": begin, "to": end}
            )
            requests = {
                name: _redrives(
                    None if ids is None else ids.get(name, ()),
                    chosen,
                    limit=limit,
                    dry_run=dry_run,
                )
                for name in urls
            }
        loop = asyncio.get_running_loop()
        due_at = loop.time()
        for broker_name, url in sorted(urls.items()):
            for request in requests[broker_name]:
                cursor: str | None = None
                while True:
                    await asyncio.sleep(max(due_at - loop.time(), 0))
                    answer = await self._masters.call(
                        RedriveAnswer,
                        "POST",
                        url,
                        f"{group_path(group)}/dead-letters:redrive",
                        request.model_copy(update={"cursor": cursor}),
                    )
                    sent = sum(one.outcome == "redriven" for one in answer.outcomes)
                    if per_second is not None and not dry_run:
                        due_at = max(due_at, loop.time()) + sent / per_second
                    for outcome in answer.outcomes:
                        yield Redriven(broker_name, outcome)
                    cursor = answer.next_cursor
                    if cursor is None:
                        break

    async def _at(
        self, url: str, group: str, chosen: Mapping[str, str | None]
    ) -> AsyncIterator[DeadLetter]:
        cursor: str | None = None
        while True:
            target = target_of(
                f"{group_path(group)}/dead-letters", **chosen, cursor=cursor, limit=LIST_LIMIT_MAX
            )
            page = await self._masters.call(DeadLetterList, "GET", url, target)
            for letter in page.dead_letters:
                yield letter
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _brokers_of(
        self, group: str, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, str]:
        """Return the URLs of the masters that have, or had, *group*, by broker name.

        Raises:
            GroupNotFoundError: None has.
        """
        check_group(group)
        urls = await self._masters.all()
        target = target_of(f"{group_path(group)}/dead-letters", limit=1)
        known = await on_those_that_know(
            urls,
            lambda url: self._masters.call(DeadLetterList, "GET", url, target),
            unknown_group(group),
            unanswered,
        )
        return {name: urls[name] for name in known}


def _redrives(
    ids: Sequence[int] | None, chosen: DeadLetterFilter, *, limit: int, dry_run: bool
) -> Sequence[Redrive]:
    """Return the requests for a broker's letters of these *ids*, or for those that are *chosen*."""
    if ids is None:
        return [Redrive(filter=chosen, limit=limit, dry_run=dry_run)]
    return [
        Redrive(ids=[*ids[first : first + limit]], limit=limit, dry_run=dry_run)
        for first in range(0, len(ids), limit)
    ]
