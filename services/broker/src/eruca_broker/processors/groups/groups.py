"""Consumer groups: their settings, and their creation by the first member that joins.

Source: RocketMQ 5.3, ``SubscriptionGroupManager``, ``AdminBrokerProcessor``. Unlike there, deleting
a group deletes its offsets, so that a later one of the same name starts without them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from eruca.contract.errors import ConflictError, GroupNotFoundError, PermissionDeniedError
from eruca.contract.groups import GroupConfig, GroupSettings
from eruca.contract.names import GROUP_NAME_FIX, broker_group_fault, is_reserved_group, retry_topic
from eruca_broker.core.state.group_events import GroupDeleted, GroupPut
from eruca_broker.core.state.group_events import GroupSettings as StoredSettings
from eruca_broker.core.state.group_state import Group
from eruca_broker.processors.groups.views import group_config, settings_of, start_of
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.name_pages import page_of
from eruca_broker.processors.topics import Topics, name_error


class Groups:
    """The broker's consumer groups, as requests see them."""

    def __init__(
        self,
        work: GroupWork,
        topics: Topics,
        *,
        auto_create: bool,
        count_max: int,
    ) -> None:
        self._work = work
        self._topics = topics
        self._auto_create = auto_create
        self._count_max = count_max

    def get(self, name: str) -> Group:
        """Return a group.

        Raises:
            GroupNotFoundError: There is none of this name.
        """
        group = self._work.store.state.groups.get(name)
        if group is None:
            raise GroupNotFoundError(
                f"this broker has no group {name!r}",
                fix=f"create it: eruca group create {name}, or PUT /v1/groups/{name}"
                + (", or let a member join it" if self._auto_create else ""),
            )
        return group

    def config(self, name: str) -> GroupConfig:
        """Return a group as the contract shows it; raises GroupNotFoundError."""
        return group_config(self.get(name), self._work.membership.members(name))

    def page(
        self,
        *,
        after: str | None,
        limit: int,
        include_system: bool,
        sees: Callable[[str], bool] | None = None,
    ) -> tuple[list[GroupConfig], str | None]:
        """Return up to *limit* groups behind *after*, by name, and where the next page begins.

        Args:
            after: The last name of the preceding page; None: there is none.
            limit: The maximum number.
            include_system: Whether reserved groups are listed, too.
            sees: Returns whether the caller may see a group; None: it may see all.
        """
        chosen, following = self.names(
            after=after, limit=limit, include_system=include_system, sees=sees
        )
        return [self.config(name) for name in chosen], following

    def names(
        self,
        *,
        after: str | None,
        limit: int,
        include_system: bool,
        sees: Callable[[str], bool] | None = None,
    ) -> tuple[list[str], str | None]:
        """Return the names of a page; arguments and result are those of :meth:`page`."""
        listed = (
            name
            for name in self._work.store.state.groups
            if include_system or not is_reserved_group(name)
        )
        return page_of(listed, after=after, limit=limit, sees=sees)

    async def put(self, name: str, settings: GroupSettings) -> tuple[GroupConfig, bool]:
        """Create a group, or change the named settings of an existing one; durable on return.

        Returns the group and whether it is new. Unchanged settings cause no write.

        Raises:
            PermissionDeniedError: It is the system's.
            ConflictError: The maximum of groups is reached.
        """
        check_group_name(name)
        async with self._work.changes.turn(name):
            known = self._work.store.state.groups.get(name)
            wanted = settings_of(settings)
            if known is None:
                self._check_room(name)
            elif known.created_at_ms is not None:  # else only commits have named it
                named = {field: getattr(wanted, field) for field in settings.model_fields_set}
                wanted = replace(known.settings, **named)
            if known is None or known.created_at_ms is None or known.settings != wanted:
                await self._work.changes.record(GroupPut(name, wanted, self._work.clock.now_ms()))
                self._work.changed(name)
            return self.config(name), known is None

    async def delete(self, name: str) -> None:
        """Delete a group with its locks and offsets, and its retry topic; durable on return.

        Its dead letters stay.

        Raises:
            GroupNotFoundError: There is none of this name.
            ConflictError: It has live members, or locks whose owners may be alive.
        """
        check_group_name(name)
        async with self._work.changes.turn(name):
            self.get(name)
            if self._work.membership.has_sessions(name):
                members = [session.client_id for session in self._work.membership.members(name)]
                shown = ", ".join(map(repr, members[:5])) or "holders of locks, since the start"
                raise ConflictError(
                    f"group {name!r} is not deleted: it has members: {shown}",
                    fix="stop these consumers, or wait until their sessions expire",
                )
            retries = retry_topic(name)
            if retries in self._work.store.state.topics:
                # Otherwise a later group of the same name would get the retries of this one.
                await self._topics.remove(retries)
            await self._work.changes.record(GroupDeleted(name))
            self._work.membership.forget(name)
            self._work.watchers.wake_group(name)

    async def created(self, name: str, start: str | datetime | None = None) -> Group:
        """Return the group, created if it did not exist; to be called in its turn.

        Raises:
            GroupNotFoundError: It does not exist, and using a group does not create it.
            PermissionDeniedError: It is the system's.
            ConflictError: The maximum of groups is reached.
        """
        known = self._work.store.state.groups.get(name)
        if known is None or is_reserved_group(name):
            check_group_name(name)
            if not self._auto_create:
                return self.get(name)
            self._check_room(name)
            settings = StoredSettings() if start is None else StoredSettings(start=start_of(start))
            await self._work.changes.record(GroupPut(name, settings, self._work.clock.now_ms()))
        return self._work.store.state.groups[name]

    def _check_room(self, name: str) -> None:
        if len(self._work.store.state.groups) >= self._count_max:
            raise ConflictError(
                f"group {name!r} is not created: groups_max ({self._count_max}) is reached",
                fix="delete groups, or raise ERUCA_BROKER_GROUPS_MAX",
            )


def check_group_name(name: str) -> None:
    """Raise an error if *name* is not a possible name of a user's group."""
    fault = broker_group_fault(name)
    if fault is not None:
        raise name_error("group", name, fault, fix=GROUP_NAME_FIX)
    if is_reserved_group(name):
        raise PermissionDeniedError(
            f"group {name!r} belongs to the system", fix="use a group with another name"
        )
