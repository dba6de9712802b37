"""Dead letters of a group over all brokers: list and redrive them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
    """A dead letter and its broker."""

    broker_name: str
    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class Redriven:
    """Outcome of the redrive of one dead letter."""

    broker_name: str
    outcome: RedriveOutcome


@dataclass(frozen=True, slots=True)
class RedriveStep:
    """Progress of a redrive, after each request to a broker."""

    total: int  # dead letters when it began, or the number of given ids
    looked_at_count: int  # letters examined so far, whether they matched or not
    outcomes: Sequence[Redriven]  # of this step


@dataclass(frozen=True, slots=True)
class RedriveSummary:
    """Result of a redrive, or of its dry run."""

    total: int  # dead letters when it began, or the number of given ids
    redriven: int
    skipped: int  # matched, but already redriven, damaged, or without a topic
    not_found: int  # given ids that do not exist


class DeadLetters:
    """Dead letters at the brokers of one cluster.

    :class:`eruca.aio.group_admin.AsyncGroupAdmin` documents the arguments and errors.
    """

    def __init__(self, masters: Masters) -> None:
        self._masters = masters

    async def of_group(
        self,
        group: str,
        *,
        topic: str | None,
        reason: str | None,
        since: datetime | None,
        until: datetime | None,
        unanswered: dict[str, ErucaError] | None,
    ) -> AsyncIterator[HeldDeadLetter]:
        """Iterate over the dead letters of *group*, broker by broker, oldest first."""
        if topic is not None:
            check_topic(topic)
        chosen = {
            "topic": topic,
            "reason": reason,
            "since": None if since is None else since.isoformat(),
            "until": None if until is None else until.isoformat(),
        }
        brokers = await self._brokers_of(group, unanswered)
        for broker_name, (url, _) in sorted(brokers.items()):
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
        since: datetime | None,
        until: datetime | None,
        per_second: float | None,
        dry_run: bool,
        on_step: Callable[[RedriveStep], object] | None,
    ) -> RedriveSummary:
        """Send dead letters to their topics of origin; return the counts."""
        if topic is not None:
            check_topic(topic)
        if per_second is not None:
            check_above_zero("per_second", per_second)
        brokers = await self._brokers_of(group)
        unknown = sorted((ids or {}).keys() - brokers.keys())
        if unknown:
            raise ValidationError(
                f"ids: expected a live broker that knows {group}, found {unknown[0]}"
            )
        limit = (
            REDRIVE_COUNT_MAX
            if per_second is None
            else max(1, int(min(per_second, REDRIVE_COUNT_MAX)))
        )
        with checked_request():
            chosen = DeadLetterFilter.model_validate(
                {"topic": topic, "reason": reason, "since": since, "until": until}
            )
            requests = {
                name: [
                    Redrive(filter=chosen, before_id=now.max_offset, limit=limit, dry_run=dry_run)
                ]
                if ids is None
                else _by_ids(ids.get(name, ()), limit=limit, dry_run=dry_run)
                for name, (_, now) in brokers.items()
            }
        # Every broker's end is fixed here. Otherwise a letter that fails again during the redrive
        # would be redriven again, without end.
        total = (
            sum(now.max_offset - now.min_offset for _, now in brokers.values())
            if ids is None
            else sum(len(set(some)) for some in ids.values())
        )
        counts: Counter[str] = Counter()
        looked_at_count = 0
        loop = asyncio.get_running_loop()
        due_at = loop.time()
        for broker_name, (url, _) in sorted(brokers.items()):
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
                    its = Counter(one.outcome for one in answer.outcomes)
                    counts.update(its)
                    looked_at_count += answer.looked_at_count
                    if per_second is not None and not dry_run:
                        due_at = max(due_at, loop.time()) + its["redriven"] / per_second
                    if on_step is not None:
                        outcomes = [Redriven(broker_name, one) for one in answer.outcomes]
                        on_step(RedriveStep(total, looked_at_count, outcomes))
                    cursor = answer.next_cursor
                    if cursor is None:
                        break
        return RedriveSummary(total, counts["redriven"], counts["skipped"], counts["not_found"])

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
    ) -> dict[str, tuple[str, DeadLetterList]]:
        """Return the URLs of the masters that have or had *group*, by broker name.

        Each URL comes with a list of its dead letters, which contains the current end.

        Raises:
            GroupNotFoundError: No broker has or had the group.
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
        return {name: (urls[name], now) for name, now in known.items()}


def _by_ids(ids: Sequence[int], *, limit: int, dry_run: bool) -> Sequence[Redrive]:
    """Return the requests that redrive a broker's dead letters with these *ids*."""
    return [
        Redrive(ids=[*ids[first : first + limit]], limit=limit, dry_run=dry_run)
        for first in range(0, len(ids), limit)
    ]
