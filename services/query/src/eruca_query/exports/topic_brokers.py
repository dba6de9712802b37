"""The brokers that hold a topic: their URLs, the offsets of its queues, and pulls from them.

A broker's failure becomes the service's own error, which names the broker: 503 if it does not
answer, so that the request may be repeated. A broker's own refusal is passed on.

No route lists system topics: each broker has its own, if it has one of that name at all. They are
read only on explicit request, so that nobody reads them by accident.

Messages are read from a standby that is in sync, if there is one: it spares the master most of an
export. The ends of queues are the master's: another replica may not show yet what has been
acknowledged, and the plan would lack it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final, NamedTuple

from eruca import AsyncClient
from eruca.contract.errors import (
    BrokerUnreachableError,
    ClientError,
    TopicNotFoundError,
    UnavailableError,
)
from eruca.contract.fields import MASTER_ID, STANDALONE_EPOCH
from eruca.contract.limits import PULL_COUNT_MAX
from eruca.contract.names import is_system_topic
from eruca.contract.routes import RouteBroker
from eruca.contract.topics import TopicQueues
from eruca.core.routing.route_table import address_for
from eruca.services.http import path_segment, target_of
from eruca_query.exports.broker_errors import RETRY_AFTER_SECONDS, naming
from eruca_query.exports.workers.steps import RowForm, Step

STEP_SIZE: Final = 3 * 1024 * 1024  # bytes of records; a larger message is pulled alone


class Place(NamedTuple):
    """The URLs of one broker."""

    master: str | None  # None: it has none now
    standby: str | None  # of a replica that is in sync; the same for all readers


class TopicBrokers:
    """One topic on its brokers; made by :func:`topic_brokers`."""

    def __init__(self, client: AsyncClient, topic: str, places: Mapping[str, Place]) -> None:
        """Take the URLs by broker name."""
        self.topic = topic
        self._client = client
        self._places = places
        self._is_system = is_system_topic(topic)

    @property
    def names(self) -> list[str]:
        """The brokers that may have the topic, sorted."""
        return sorted(self._places)

    async def check_held(self, said: Collection[str]) -> None:
        """Ensure that the topic exists: on a live broker, or on one of *said* that is away.

        A name server forgets a broker together with its topics. While a broker restarts, the topics
        that no other broker has seem missing.

        Raises:
            TopicNotFoundError: No live broker has it, and none that is said to have it is away.
            UnavailableError: No name server answers.
        """
        if self._places:
            return
        if said:
            with asking_name_servers():
                live = {group.broker_name for group in await self._client.admin.brokers()}
            if not live.issuperset(said):
                return
        raise TopicNotFoundError(
            f"no live broker has topic {self.topic}", fix=TopicNotFoundError.fix_of(self.topic)
        )

    async def queues(self, broker_names: list[str]) -> dict[str, TopicQueues]:
        """Return the offsets of each queue on *broker_names*, per broker at one moment.

        Raises:
            BrokerUnreachableError: One does not answer, has no master, or its address is unknown.
            NotMasterForSureError: The answer of one is not its master's.
            TopicNotFoundError: One does not have the topic; for a system topic: none has it.
        """
        outcomes = await asyncio.gather(*map(self._queues_of, broker_names), return_exceptions=True)
        found: dict[str, TopicQueues] = {}
        ignorance: BaseException | None = None
        for name, outcome in zip(broker_names, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                found[name] = outcome
            elif self._is_system and isinstance(outcome, TopicNotFoundError):
                ignorance = outcome
            else:
                raise outcome
        if ignorance is not None and not found:
            raise ignorance
        return found

    async def offset_at(self, broker_name: str, queue_id: int, moment: datetime) -> int:
        """Return the offset of the queue's first message stored at *moment* or later.

        Raises:
            NotMasterForSureError: The answer is not the master's, and may lack messages.
        """
        url = self._url(broker_name)
        with naming(broker_name):
            found = await self._client.context.broker_api.offset_by_time(
                url, self.topic, queue_id, moment, include_system=self._is_system
            )
        return found.offset

    def has_standby(self, broker_name: str) -> bool:
        """Tell whether a replica can be read instead of the broker's master."""
        place = self._places.get(broker_name)
        return place is not None and place.standby is not None

    def step(
        self,
        broker_name: str,
        queue_id: int,
        offset: int,
        form: RowForm,
        *,
        count_max: int,
        at_standby: bool = False,
    ) -> Step:
        """Return the step that turns messages from *offset* on into rows, at least one message.

        Raises:
            BrokerUnreachableError: The broker has no master, or its address is unknown.
        """
        url = self._places[broker_name].standby if at_standby else self._url(broker_name)
        assert url is not None, "the caller asks whether there is a standby"
        target = target_of(
            f"/v1/topics/{path_segment(self.topic)}/queues/{queue_id}/messages",
            offset=offset,
            count_max=min(PULL_COUNT_MAX, count_max),
            bytes_max=STEP_SIZE,
            include_system=self._is_system or None,
        )
        return Step(
            number=0,  # the worker pool assigns it
            url=url,
            target=target,
            timeout=self._client.settings.timeout_seconds,
            topic=self.topic,
            broker_name=broker_name,
            queue_id=queue_id,
            offset=offset,
            form=form,
        )

    async def _queues_of(self, broker_name: str) -> TopicQueues:
        url = self._url(broker_name)
        with naming(broker_name):
            return await self._client.context.broker_api.topic_queues(
                url, self.topic, include_system=self._is_system
            )

    def _url(self, broker_name: str) -> str:
        """Return the URL of the broker's master."""
        place = self._places.get(broker_name)
        if place is not None and place.master is not None:
            return place.master
        if place is not None and place.standby is not None:
            raise BrokerUnreachableError(
                f"broker {broker_name} has no master now, which knows what it has acknowledged",
                fix="retry: replicas elect a master within seconds",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        raise BrokerUnreachableError(
            f"broker {broker_name} is away: no name server knows its address, with topic "
            f"{self.topic}",
            fix="wait until it is back; or plan again without it: missing=skip",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )


async def topic_brokers(client: AsyncClient, topic: str) -> TopicBrokers:
    """Return the brokers of *topic*, as a name server knows them now; there may be none.

    Raises:
        UnavailableError: No name server answers.
    """
    with asking_name_servers():
        brokers = await _brokers_of(client, topic)
    network = client.settings.network
    places = {broker.broker_name: place_of(broker, network) for broker in brokers}
    return TopicBrokers(client, topic, places)


async def _brokers_of(client: AsyncClient, topic: str) -> list[RouteBroker]:
    """Return the brokers that have the topic, or may have it if it is a system topic."""
    if is_system_topic(topic):
        return [
            RouteBroker(
                cluster=group.cluster,
                broker_name=group.broker_name,
                urls={broker.broker_id: broker.urls for broker in group.brokers},
                store_hosts={},
                epoch=group.epoch,
                roles={broker.broker_id: broker.role for broker in group.brokers},
            )
            for group in await client.admin.brokers()
        ]
    try:
        return (await client.admin.route(topic)).brokers
    except TopicNotFoundError:
        return []


def place_of(broker: RouteBroker, network: str) -> Place:
    """Return the URLs at which clients in *network* read from a broker."""
    standbys = [
        broker_id
        for broker_id, role in broker.roles.items()
        if role == "standby" and broker.epoch > STANDALONE_EPOCH and broker.urls.get(broker_id)
    ]
    master = broker.urls.get(MASTER_ID)
    return Place(
        address_for(master, network) if master else None,
        address_for(broker.urls[min(standbys)], network) if standbys else None,
    )


@contextmanager
def asking_name_servers() -> Iterator[None]:
    """Raise UnavailableError if none answers."""
    try:
        yield
    except ClientError as error:
        raise UnavailableError(
            error.detail, fix=error.fix, retry_after_seconds=RETRY_AFTER_SECONDS
        ) from error
