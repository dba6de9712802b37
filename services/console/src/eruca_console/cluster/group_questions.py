"""The consumer groups: settings, members, lag and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eruca import GroupLag, HeldDeadLetter, TotalLag
from eruca.contract.errors import ErucaError
from eruca.contract.groups import GroupAsOf, GroupConfig, MemberList
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.questions import Gathered, Questions


class GroupQuestions(Questions):
    """Questions about consumer groups."""

    async def groups(self) -> Answered[Gathered[Mapping[str, Mapping[str, GroupConfig]]]]:
        """Return the settings of all groups: by group, then by broker."""
        return await self.gathered(
            "groups",
            lambda silent: self.client.admin.groups.list(unanswered=silent),
            is_costly=True,
        )

    async def group(self, group: str) -> Answered[Gathered[Mapping[str, GroupConfig]]]:
        """Return the settings of a group by broker; raises as ``admin.groups.get``."""
        return await self.gathered(
            ("group", group), lambda silent: self.client.admin.groups.get(group, unanswered=silent)
        )

    async def members(self, group: str) -> Answered[Gathered[Mapping[str, MemberList]]]:
        """Return the members of a group as each broker sees them."""
        return await self.gathered(
            ("members", group),
            lambda silent: self.client.admin.groups.members(group, unanswered=silent),
        )

    async def lag(self, group: str, topic: str | None = None) -> Answered[Gathered[GroupLag]]:
        """Return the lag of a group, in one topic or in all; without a broker it is unknown."""
        answered = await self.gathered(
            ("lag", group, topic),
            lambda silent: self.client.admin.groups.lag(group, topic=topic, unanswered=silent),
        )
        gathered = answered.value
        if gathered.is_whole:
            return answered
        unknown = replace(gathered.value, lag=None, oldest_unconsumed_at=None)
        return replace(answered, value=replace(gathered, value=unknown))

    async def lags(self) -> Answered[Gathered[Mapping[str, TotalLag]]]:
        """Return the lag of all groups in total; without a broker all are unknown."""

        async def ask(silent: dict[str, ErucaError]) -> Mapping[str, TotalLag]:
            return await self.client.admin.groups.lags(unanswered=silent)

        answered = await self.gathered("lags", ask, is_costly=True)
        gathered = answered.value
        if gathered.is_whole:
            return answered
        unknown = dict.fromkeys(gathered.value, TotalLag(None, None))
        return replace(answered, value=replace(gathered, value=unknown))

    async def group_as_of(
        self, group: str, broker_name: str, log_offset: int
    ) -> Answered[GroupAsOf]:
        """Return a group as of an offset of a broker's log; raises as ``admin.groups.as_of``."""

        async def ask() -> GroupAsOf:
            return await self.client.admin.groups.as_of(
                group, broker_name=broker_name, log_offset=log_offset
            )

        return await self.cache.get(("group as of", group, broker_name, log_offset), ask)

    async def dead_letters(
        self, group: str, maximum: int
    ) -> Answered[Gathered[Sequence[HeldDeadLetter]]]:
        """Return the first dead letters of a group; raises as ``admin.groups.dead_letters``."""

        async def ask(silent: dict[str, ErucaError]) -> Sequence[HeldDeadLetter]:
            found: list[HeldDeadLetter] = []
            async for held in self.client.admin.groups.dead_letters(group, unanswered=silent):
                found.append(held)
                if len(found) == maximum:
                    break
            return found

        return await self.gathered(("dead letters", group, maximum), ask)
