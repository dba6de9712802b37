"""A broker group while a command works on it: its row, its replicas, and the command's output."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from rich.progress import DownloadColumn

from eruca.aio.cluster.requests import ask
from eruca.cli.replicas.controllers import Controllers
from eruca.cli.replicas.group_changes import in_sync_ids, leads, replica_of
from eruca.cli.replicas.missing_messages import MissingMessages, missing_messages
from eruca.cli.replicas.shown_groups import ids_text, show_group
from eruca.cli.sending.progress import progress_bar
from eruca.contract.broker_groups import Replica
from eruca.contract.errors import (
    BrokerNotFoundError,
    ErucaError,
    NotFoundError,
    NotMasterError,
    PreconditionFailedError,
    TimeoutExpiredError,
    TransportError,
)
from eruca.contract.replication import ReplicationStatus, SwitchRequest, SwitchResult
from eruca.core.routing.route_table import address_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eruca.aio.client import AsyncClient
    from eruca.cli.replicas.group_changes import Statuses
    from eruca.cli.session import Session
    from eruca.contract.broker_groups import BrokerGroupPut, BrokerGroupView

SWITCH_SECONDS: Final = 30.0  # an orderly hand-over takes less than one
STALL_SECONDS: Final = 60.0  # without progress of a replica that catches up
_STATUS_SECONDS: Final = 5.0  # for a replica's status; as long as the doctor waits for a service
_LOOK_SECONDS: Final = 0.25


class OperatedGroup:
    """The requests of one command about one broker group.

    Args:
        session: The command's.
        client: Sends the requests.
        controllers: The controllers' URLs.
        broker: The group's name.
    """

    def __init__(
        self, session: Session, client: AsyncClient, controllers: Sequence[str], broker: str
    ) -> None:
        self._session = session
        self._client = client
        self._controller_urls = controllers
        self._controllers = Controllers(client.context.transport, controllers)
        self._broker = broker

    async def row(self) -> BrokerGroupView:
        """Return the group's row.

        Raises:
            NotFoundError: The arbiter has none.
        """
        return await self._controllers.group(self._broker)

    async def row_or_none(self) -> BrokerGroupView | None:
        """Return the group's row; None if the arbiter has none."""
        try:
            return await self.row()
        except NotFoundError:
            return None

    async def change(self, before: BrokerGroupView | None, row: BrokerGroupPut) -> None:
        """Replace the row *before* by *row*, and show it.

        Raises:
            PreconditionFailedError: Somebody else has changed the row first.
        """
        version = None if before is None else before.version
        try:
            after = await self._controllers.change(self._broker, row, version=version)
        except PreconditionFailedError as error:
            now = await self.row()
            error.detail = (
                f"somebody else has changed {self._broker} first ({now.by}: {now.reason}): now its"
                f" epoch is {now.epoch}, its master {now.master.replica_id}, in sync:"
                f" {ids_text(in_sync_ids(now))}"
            )
            error.fix = f"eruca broker show {self._broker}; decide again, and repeat the command"
            raise
        await self.show(after)

    async def show(self, row: BrokerGroupView) -> None:
        """Show the group."""
        if self._session.is_json:
            self._session.show_json(row)
        else:
            show_group(self._session, row, await self.statuses(row.replicas))

    async def statuses(self, replicas: Iterable[Replica]) -> Statuses:
        """Return the statuses of those *replicas* that answer, by replica id."""
        asked = [*replicas]
        found = await asyncio.gather(*map(self._status, asked))
        return {
            replica.replica_id: status
            for replica, status in zip(asked, found, strict=True)
            if status is not None
        }

    async def missing_messages(
        self, replica_id: int, replicas: Iterable[Replica], statuses: Statuses
    ) -> MissingMessages | None:
        """Return the confirmed messages that another replica has, and *replica_id* lacks.

        None: nobody who answers has them, or the number is not known.
        """
        own, urls = statuses[replica_id], {one.replica_id: self._url(one) for one in replicas}
        best = max(statuses, key=lambda other: min(statuses[other].confirmed, statuses[other].end))
        confirmed = min(statuses[best].confirmed, statuses[best].end)
        if confirmed <= own.end:
            return None
        transport = self._client.context.transport
        return await missing_messages(transport, urls[best], own.end, confirmed)

    async def every_replica(self, row: BrokerGroupView | None) -> list[Replica]:
        """Return the replicas of the row and of the name servers.

        Raises:
            BrokerNotFoundError: Neither knows the broker.
            ErucaError: The row is lost, and no name server answers.
        """
        found = {} if row is None else {one.replica_id: one for one in row.replicas}
        try:
            groups = await self._client.admin.brokers()
        except ErucaError:
            if row is None:
                raise
            groups = []
        addresses = [a for g in groups if g.broker_name == self._broker for a in g.brokers]
        for address in addresses:
            if address.replica_id is not None and address.replica_id not in found:
                # Its status has its uid; it is not named without one.
                found[address.replica_id] = Replica(
                    replica_id=address.replica_id, uid="unknown", urls=address.urls
                )
        if not found:
            raise BrokerNotFoundError(
                f"neither a controller nor a name server knows replicas of {self._broker}"
            )
        return [found[replica_id] for replica_id in sorted(found)]

    def settings_of(self, replica_id: int) -> dict[str, str]:
        """Return the settings of a new replica's broker; two of them are the user's to fill in."""
        return {
            "ERUCA_BROKER_NAME": self._broker,
            "ERUCA_BROKER_REPLICA_ID": str(replica_id),
            "ERUCA_BROKER_CONTROLLER_URLS": ";".join(self._controller_urls),
            "ERUCA_BROKER_NAMESRV_URLS": ";".join(self._client.settings.namesrv_urls),
            "ERUCA_BROKER_STORE_DIR": "EMPTY-DIRECTORY",
            "ERUCA_BROKER_ADVERTISED_URL": "http://HOST:PORT",
        }

    async def hand_over(self, row: BrokerGroupView, to: int | None) -> BrokerGroupView:
        """Let the master hand over; return the row of the next term.

        Raises:
            TransportError: The master does not answer.
            TimeoutExpiredError: It does not answer, or no term begins.
            RefusedError: It does not hand over, and remains the master.
        """
        master = replica_of(row, row.master.replica_id)
        try:
            successor = await ask(
                SwitchResult,
                self._client.context.transport,
                "POST",
                self._url(master),
                "/v1/replication/switch",
                body=SwitchRequest(to=to),
                timeout=SWITCH_SECONDS,
            )
        except NotMasterError as error:
            error.fix = "the group has changed meanwhile: repeat the command"
            raise
        except (TransportError, TimeoutExpiredError) as error:
            error.fix = (
                "if the master is down, the others elect another one by themselves within seconds:"
                f" eruca broker show {self._broker}"
            )
            raise
        until = time.monotonic() + SWITCH_SECONDS
        while True:
            after = await self.row()
            leader = replica_of(after, after.master.replica_id)
            status = await self._status(leader)
            if after.epoch >= successor.epoch and status is not None and leads(after, status):
                return after
            if time.monotonic() > until:
                raise TimeoutExpiredError(
                    f"replica {leader.replica_id} of {self._broker} does not lead epoch"
                    f" {after.epoch} yet",
                    fix=f"see the replicas' logs, and eruca broker history {self._broker}",
                )
            await asyncio.sleep(_LOOK_SECONDS)

    async def caught_up(self, replica_id: int) -> BrokerGroupView:
        """Show a replica's progress until it is in sync; return the row then.

        Raises:
            TimeoutExpiredError: It runs, and makes no progress.
        """
        before = -1
        moved_at = time.monotonic()
        with progress_bar(DownloadColumn(binary_units=True)) as progress:
            bar = progress.add_task(f"replica {replica_id}", total=None)
            while True:
                row = await self.row()
                if replica_id in in_sync_ids(row):
                    return row
                statuses = await self.statuses(row.replicas)
                status = statuses.get(replica_id)
                if status is None:
                    moved_at = time.monotonic()  # its machine may still have to be set up
                else:
                    end = max(one.end for one in statuses.values())
                    start = status.min_offset
                    progress.update(bar, total=end - start, completed=status.end - start)
                    if status.end != before:
                        before, moved_at = status.end, time.monotonic()
                    elif time.monotonic() - moved_at > STALL_SECONDS:
                        raise self._stalled(replica_id, status)
                await asyncio.sleep(_LOOK_SECONDS)

    def _stalled(self, replica_id: int, status: ReplicationStatus) -> TimeoutExpiredError:
        following = status.following
        reason = f"it is {status.role}" if following is None else following.reason
        return TimeoutExpiredError(
            f"replica {replica_id} of {self._broker} has copied nothing for"
            f" {STALL_SECONDS:.0f} s: {reason or 'no reason is known'}",
            fix=f"fix the cause; it goes on by itself: eruca broker show {self._broker}",
        )

    async def _status(self, replica: Replica) -> ReplicationStatus | None:
        try:
            status = await ask(
                ReplicationStatus,
                self._client.context.transport,
                "GET",
                self._url(replica),
                "/v1/replication/status",
                timeout=_STATUS_SECONDS,
            )
        except ErucaError:
            return None  # the commands name the replicas that are missing
        # Another replica may have its address now.
        return status if status.replica_id == replica.replica_id else None

    def _url(self, replica: Replica) -> str:
        return address_for(replica.urls, self._client.settings.network)
