"""Dead letters: list, show and redrive a group's failed messages.

They are the messages of the group's dead-letter topic, from which nothing is ever removed. A
redrive is an event, in the same write as the message that is sent again. So no crash makes it
happen twice, or records it without sending the message.

A damaged dead letter does not block the others. Every list contains it, marked, whatever the
filter, because it may match.

Lists and redrives end where the dead letters ended when the first page was requested. A redriven
message may become dead again at once. A redrive that included those would never end.

Letters may be anywhere in the log, and most of them only in the tier. A page reads them one segment
after the other, and waits for what must be fetched. After some seconds, or when the tier does not
answer any more, it ends with what it has. A redrive reads before its turn, so that nobody waits for
the tier with it: letters never change.

Source: RocketMQ 5.3, ``DLQMessageController`` of its dashboard, which sends again what it is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import structlog

from eruca.contract.errors import DeadLetterNotFoundError, UnavailableError
from eruca.contract.messages import as_builtins
from eruca.contract.names import dead_letter_topic, is_made_by_system
from eruca.contract.properties import DEAD_ERROR, DEAD_REASON, UNIQ_KEY
from eruca.contract.records import Record, decode_record
from eruca.contract.retries import (
    DeadLetter,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterList,
    Redrive,
    RedriveAnswer,
    RedriveOutcome,
)
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.damage import Damage
from eruca_broker.core.records.dead_letters import Origin, is_of_damage, origin_of, redriven
from eruca_broker.core.records.rendering import render
from eruca_broker.core.records.scheduled import Destination, host_bits_of
from eruca_broker.core.records.times import moment, ms_not_before, rfc3339
from eruca_broker.core.state.timers_events import DeadLettersRedriven
from eruca_broker.processors.groups.groups import Groups
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.pacing import Pace
from eruca_chassis.finishing import finished

LOOKED_AT_MAX: Final = 2_000  # dead letters that one page or one redrive examines
READ_SECONDS: Final = 5.0  # after which one of them ends early
REDRIVEN_SIZE_MAX: Final = 4 * 1024 * 1024  # bytes of one redrive; the first goes whatever its size
_READ_SIZE: Final = 1024 * 1024
_BODY_ROOM: Final = 16 * 1024 * 1024  # maximum bytes of a decompressed body
_UNREADABLE: Final = "is damaged: what the disk holds is not what was stored"

_log = structlog.get_logger()


@dataclass(slots=True)
class _Letter:
    """A dead letter, read."""

    id: int
    raw: memoryview
    record: Record
    origin: Origin
    properties: dict[str, str]


class _Redriven(NamedTuple):
    """A dead letter and the record that replaces it."""

    dead_letter: int
    place: Destination
    record: bytes


class _Read(NamedTuple):
    """The letters that a redrive has read."""

    letters: list[_Letter | RedriveOutcome]
    next_id: int  # the first one that was not examined


class Stretch(NamedTuple):
    """The beginning of a page, and the end of its list.

    An id is a position in a queue. If the letters are deleted, or an unclean election loses some,
    others get the same ids. So a later page says which ones it continues.
    """

    start: int = 0
    end: int | None = None  # the first id that is not part of it; None: the current end
    created_at: int | None = None  # log offset at which the letters began; None: the first page
    epoch: int = 0  # the log's last one at the first page


class DeadLetters:
    """The dead letters of this broker's groups."""

    def __init__(self, work: GroupWork, groups: Groups) -> None:
        self.redriven_count = 0  # since the start
        self._work = work
        self._groups = groups

    def continues(self, group: str, stretch: Stretch) -> bool:
        """Tell whether the ids of a stretch are still those of the letters that its list had."""
        if stretch.created_at is None:
            return True
        is_lost = any(
            one.is_unclean and one.number > stretch.epoch for one in self._work.store.role.epochs()
        )
        return not is_lost and self._created_at(group) == stretch.created_at

    async def page(
        self, group: str, chosen: DeadLetterFilter, stretch: Stretch, *, limit: int
    ) -> tuple[DeadLetterList, Stretch | None]:
        """Return up to *limit* dead letters of a stretch, oldest first, and the stretch's rest.

        A page examines a bounded number. So it may contain fewer than *limit*, or none, and not be
        the last.

        Raises:
            GroupNotFoundError: There is no such group, and it has left no dead letters.
        """
        self._check(group)
        found: list[DeadLetter] = []
        first, end = self._range(group, stretch.end)
        next_id = stretch.start
        pace = Pace()
        async with aclosing(self._letters(group, stretch.start, end)) as letters:
            async for dead_letter, letter in letters:
                await pace.step()
                next_id = dead_letter + 1
                if isinstance(letter, Damage):
                    found.append(self._marked(group, letter))
                elif _matches(letter, chosen):
                    found.append(self._shown(group, letter))
                if len(found) == limit:
                    break
        page = DeadLetterList(dead_letters=found, min_offset=first, max_offset=end)
        return page, self._rest(group, stretch, next_id, end)

    async def get(self, group: str, dead_letter: int) -> DeadLetterDetail:
        """Return a dead letter with its message.

        Raises:
            GroupNotFoundError: There is no such group, and it has left no dead letters.
            DeadLetterNotFoundError: It does not exist, or is damaged beyond reading.
        """
        self._check(group)
        letter = await self._letter(group, dead_letter)
        if isinstance(letter, Damage):
            raise DeadLetterNotFoundError(
                f"dead letter {dead_letter} of group {group!r} {_UNREADABLE}"
            )
        if letter is None:
            first, end = self._range(group)
            raise DeadLetterNotFoundError(
                f"group {group!r} has no dead letter {dead_letter} here; it has {end - first}"
            )
        message = render(letter.record, body_room=_BODY_ROOM).message
        shown = self._shown(group, letter)
        return DeadLetterDetail(**shown.model_dump(), message=as_builtins(message))

    async def redrive(
        self,
        group: str,
        request: Redrive,
        stretch: Stretch,
        require_topic: Callable[[str], None],
    ) -> tuple[RedriveAnswer, Stretch | None]:
        """Send dead letters to their topics of origin as new messages; durable on return.

        A letter is skipped if it was redriven before, is damaged, replaces a damaged message, or if
        its topic no longer exists.

        Returns the outcome of each, and the rest of the stretch with a filter, None at the end.

        Args:
            group: The group of the letters.
            request: The letters.
            stretch: The ids among which a filter looks.
            require_topic: Called with each topic before anything is sent there; raises if the
                caller may not send there.

        Raises:
            GroupNotFoundError: There is no such group, and it has left no dead letters.
        """
        self._check(group)
        created_at = self._created_at(group)
        first, end = self._range(group, stretch.end)
        read = await self._read(group, request, stretch.start, end)
        async with self._work.changes.turn(group):
            self._check(group)
            self._check_same(group, created_at)
            outcomes: list[RedriveOutcome] = []
            chosen: list[_Redriven] = []
            for letter in read.letters:
                if isinstance(letter, RedriveOutcome):
                    outcomes.append(letter)
                    continue
                again, outcome = self._examined(group, letter)
                outcomes.append(outcome)
                if again is not None:
                    chosen.append(again)
            for topic in {again.place.topic for again in chosen}:
                require_topic(topic)
            if chosen and not request.dry_run:
                await self._send(group, chosen)
            if request.ids is not None:
                told = {outcome.dead_letter_id for outcome in outcomes}
                outcomes += [
                    RedriveOutcome(
                        dead_letter_id=dead_letter,
                        outcome="skipped",
                        topic=None,
                        detail="too much for one request: redrive it again",
                    )
                    for dead_letter in dict.fromkeys(request.ids)
                    if dead_letter not in told
                ]
        looked_at = len(outcomes)
        if request.filter is not None:
            looked_at = max(read.next_id - max(stretch.start, first), 0)
        answer = RedriveAnswer(
            outcomes=outcomes, looked_at_count=looked_at, dry_run=request.dry_run
        )
        return answer, None if request.filter is None else self._rest(
            group, stretch, read.next_id, end
        )

    async def _send(self, group: str, chosen: Iterable[_Redriven]) -> None:
        records: defaultdict[tuple[Destination, int], list[bytes]] = defaultdict(list)
        ids = []
        for dead_letter, place, record in chosen:
            records[place, host_bits_of(record)].append(record)
            ids.append(dead_letter)
        batches = [batch_of_records(*place, some) for (place, _), some in records.items()]
        size = sum(batch.size for batch in batches)
        head = DeadLettersRedriven(group, ids, self._work.clock.now_ms(), size)
        # The turn must not end earlier.
        await finished(self._work.store.append_group(batches, head))
        self.redriven_count += len(ids)

    async def _read(self, group: str, request: Redrive, start: int, end: int) -> _Read:
        """Return the letters of a redrive; for those whose outcome is certain, the outcome."""
        letters: list[_Letter | RedriveOutcome] = []
        size, next_id = 0, start
        async with aclosing(self._wanted(group, request, start, end)) as wanted:
            async for dead_letter, letter in wanted:
                if size > REDRIVEN_SIZE_MAX or len(letters) == request.limit:
                    break
                next_id = dead_letter + 1
                if letter is None or isinstance(letter, Damage):
                    letters.append(_unread(dead_letter, letter))
                elif request.filter is None or _matches(letter, request.filter):
                    if self._work.store.state.redriven.redriven_at(group, dead_letter) is None:
                        letters.append(letter)
                        size += len(letter.raw)
                    else:
                        letters.append(self._examined(group, letter)[1])
        return _Read(letters, next_id)

    async def _wanted(
        self, group: str, request: Redrive, start: int, end: int
    ) -> AsyncGenerator[tuple[int, _Letter | Damage | None], None]:
        if request.ids is None:
            async with aclosing(self._letters(group, start, end)) as letters:
                async for found in letters:
                    yield found
            return
        ends_at = self._work.clock.monotonic() + READ_SECONDS
        for number, dead_letter in enumerate(dict.fromkeys(request.ids)):
            if number and self._work.clock.monotonic() >= ends_at:
                return
            try:
                letter = await self._letter(group, dead_letter)
            except UnavailableError:
                if not number:
                    raise
                return
            yield dead_letter, letter

    def _examined(self, group: str, letter: _Letter) -> tuple[_Redriven | None, RedriveOutcome]:
        """Return the record of a redriven letter, or None, and the outcome for the answer."""
        name = letter.origin.topic
        topic = self._work.store.state.topics.get(name)
        redriven_at = self._work.store.state.redriven.redriven_at(group, letter.id)
        again, fault = None, None
        if redriven_at is not None:
            fault = f"it was redriven at {rfc3339(redriven_at)}"
        elif is_of_damage(letter.record, letter.properties):
            fault = "its message was damaged, so nothing can be sent"
        elif is_made_by_system(name):
            fault = "its topic of origin is unknown"
        elif topic is None or self._work.store.is_leaving(name):
            fault = f"topic {name!r} no longer exists"
        elif not topic.is_writable:
            fault = f"topic {name!r} is not writable: its permission is {topic.permission!r}"
        else:
            place = Destination(name, topic.queue_now(letter.origin.queue_id or 0))
            again = _Redriven(letter.id, place, redriven(letter.raw, place))
        outcome = RedriveOutcome(
            dead_letter_id=letter.id,
            outcome="redriven" if fault is None else "skipped",
            topic=name,
            detail=fault,
        )
        return again, outcome

    def _shown(self, group: str, letter: _Letter) -> DeadLetter:
        redriven_at = self._work.store.state.redriven.redriven_at(group, letter.id)
        return DeadLetter(
            dead_letter_id=letter.id,
            origin_topic=letter.origin.topic,
            origin_queue_id=letter.origin.queue_id,
            origin_offset=letter.origin.offset,
            message_id=letter.properties.get(UNIQ_KEY),
            reason=letter.properties.get(DEAD_REASON),
            attempts=letter.record.reconsume_times or None,
            last_error=letter.properties.get(DEAD_ERROR),
            dead_at=moment(letter.record.store_timestamp),
            redriven_at=None if redriven_at is None else moment(redriven_at),
            size=len(letter.raw),
        )

    def _marked(self, group: str, damage: Damage) -> DeadLetter:
        """Return a damaged dead letter as a list shows it: its place, and its fault."""
        redriven_at = self._work.store.state.redriven.redriven_at(group, damage.queue_offset)
        return DeadLetter(
            dead_letter_id=damage.queue_offset,
            origin_topic=None,
            origin_queue_id=None,
            origin_offset=None,
            message_id=None,
            reason=None,
            attempts=None,
            last_error=None,
            dead_at=None,
            redriven_at=None if redriven_at is None else moment(redriven_at),
            size=damage.size,
            damage=str(damage),
        )

    async def _letters(
        self, group: str, start: int, end: int
    ) -> AsyncGenerator[tuple[int, _Letter | Damage], None]:
        """Yield dead letters from *start* to before *end*, with their ids.

        One request examines LOOKED_AT_MAX of them, and ends after READ_SECONDS, or when one cannot
        be read now; but it yields at least one, if there are any. For a damaged one, which is
        logged, the damage is yielded.

        Raises:
            UnavailableError: The first one cannot be read now, or all have been deleted meanwhile:
                the ids are those of other letters then.
        """
        created_at = self._created_at(group)
        first, _ = self._range(group)
        offset = begin = max(start, first)
        end = min(end, offset + LOOKED_AT_MAX)
        ends_at = self._work.clock.monotonic() + READ_SECONDS
        while offset < end and (offset == begin or self._work.clock.monotonic() < ends_at):
            look = partial(
                self._work.store.queues.read,
                *(dead_letter_topic(group), 0, offset),
                count_max=end - offset,
                bytes_max=_READ_SIZE,
            )
            try:
                read = await self._work.store.cold.read(f"dead letters of {group}", look)
            except UnavailableError:
                if offset == begin:
                    raise
                return
            self._check_same(group, created_at)
            if read.damage is not None:
                yield read.damage.queue_offset, read.damage
            for dead_letter, raw in enumerate(read.raws(), offset):
                yield dead_letter, _letter(dead_letter, raw)
            if read.next_offset <= offset:
                return  # the queue ends earlier now: a replica's log was truncated
            offset = read.next_offset

    async def _letter(self, group: str, dead_letter: int) -> _Letter | Damage | None:
        first, end = self._range(group)
        if not first <= dead_letter < end:
            return None
        async with aclosing(self._letters(group, dead_letter, dead_letter + 1)) as letters:
            async for _, letter in letters:
                return letter
        return None  # retention has deleted it meanwhile

    def _rest(self, group: str, stretch: Stretch, next_id: int, end: int) -> Stretch | None:
        """Return what is left of *stretch*; None: nothing."""
        first, _ = self._range(group)
        start = max(next_id, first)
        if start >= end:
            return None
        if stretch.created_at is not None:
            return stretch._replace(start=start, end=end)
        return Stretch(start, end, self._created_at(group), self._work.store.role.epochs().last)

    def _range(self, group: str, end: int | None = None) -> tuple[int, int]:
        """Return the first dead letter's id and the id behind the last; *end* at the most."""
        first, now = self._work.store.queues.range(dead_letter_topic(group), 0)
        return first, now if end is None else min(now, max(end, first))

    def _created_at(self, group: str) -> int | None:
        """Return the log offset at which the group's dead letters began; None: there are none."""
        known = self._work.store.state.topics.get(dead_letter_topic(group))
        return None if known is None else known.created_at

    def _check_same(self, group: str, created_at: int | None) -> None:
        """Go on if the group's dead letters are still those that began at *created_at*."""
        if self._created_at(group) != created_at:
            raise UnavailableError(
                f"the dead letters of group {group!r} were deleted while they were read",
                fix="repeat the request",
            )

    def _check(self, group: str) -> None:
        if dead_letter_topic(group) not in self._work.store.state.topics:
            self._groups.get(group)


def _letter(dead_letter: int, raw: memoryview) -> _Letter:
    record = decode_record(raw, check_crc=False)
    return _Letter(dead_letter, raw, record, origin_of(record), record.property_map())


def _unread(dead_letter: int, damage: Damage | None) -> RedriveOutcome:
    """Return the error text for a dead letter that is damaged, or does not exist."""
    return RedriveOutcome(
        dead_letter_id=dead_letter,
        outcome="not_found" if damage is None else "skipped",
        topic=None,
        detail=None if damage is None else f"it {_UNREADABLE}",
    )


def _matches(letter: _Letter, chosen: DeadLetterFilter) -> bool:
    dead_at_ms = letter.record.store_timestamp
    return (
        (chosen.topic is None or letter.origin.topic == chosen.topic)
        and (chosen.reason is None or letter.properties.get(DEAD_REASON) == chosen.reason)
        and (chosen.since is None or dead_at_ms >= ms_not_before(chosen.since))
        and (chosen.until is None or dead_at_ms < ms_not_before(chosen.until))
        and (chosen.message_ids is None or letter.properties.get(UNIQ_KEY) in chosen.message_ids)
    )
