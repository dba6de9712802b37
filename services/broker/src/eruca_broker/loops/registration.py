"""Registration: inform every name server that this broker is alive, and of its topics.

Each name server has its own loop, so that one that is down or slow delays no other. A loop sends a
light heartbeat every few seconds. It also sends the topics at the start, every half minute, after a
change, and if the name server reports others. A registration that failed is repeated sooner: until
then nobody finds the broker there. At the end it asks each name server to remove this
broker, unless another broker has taken its place there.

A name server refuses a broker if another one has its name there. A broker that is refused, and
registered nowhere, must not work: no consumer would see its messages
(:attr:`Registration.refusal`).

Who changes a topic is answered once the name servers that have this broker have the change, too
(:meth:`Registration.told`). Otherwise a client that asks for the route next would not find it. A
registration lists all topics, so a change costs time in proportion to their number. Changes made
while a registration is under way share the next one: many at once cost few registrations, but n
changes one by one cost n.

A broker with replicas is registered with its place in its group, which changes while it runs: the
master under broker id 0, others under the numbers of their replicas. A change is sent at once.

Name servers report the ordered topics of other brokers. After a restart they get them from brokers
(``eruca_namesrv.ordered_topics``), because a broker that is away cannot register them itself. A
send does not create such a topic here, or its sharding keys would be in two queues.

Source: RocketMQ 5.3, ``BrokerController.registerBrokerAll``, ``BrokerOuterAPI``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from eruca.contract.errors import ConflictError, ErucaError, NotFoundError
from eruca.contract.fields import MASTER_ID, STANDALONE_EPOCH, BrokerRole
from eruca.contract.limits import FORMER_STORE_HOST_COUNT_MAX, REGISTRATION_SECONDS_MAX
from eruca.contract.ordered_topics import ordered_topics_of
from eruca.contract.routes import BrokerRegistration, RegistrationResult
from eruca.contract.topics import TopicConfig
from eruca.core.pauses import doubled
from eruca.services.cluster import parsed, send_model
from eruca.services.http import Credentials, HttpTransport, http1_transport, target_of
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop

RETRY_SECONDS: Final = 0.5  # after a registration that failed; doubles, up to the heartbeat
UNREGISTER_SECONDS: Final = 2.0  # less than for a registration: shutdown waits for it
TOLD_SECONDS: Final = 1.0  # for a name server to acknowledge a change; a client waits for it

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Registrant:
    """The constant part of a broker's registration at name servers."""

    cluster: str
    broker_name: str
    urls: Mapping[str, str]
    store_host: str
    heartbeat_seconds: float
    registration_seconds: float
    expiry_seconds: float


class Place(NamedTuple):
    """The place of a broker among the brokers of its name."""

    broker_id: int
    epoch: int = STANDALONE_EPOCH
    role: BrokerRole | None = None  # None: as the broker id says
    replica_id: int | None = None
    former_store_hosts: tuple[str, ...] = ()  # of former masters, the latest first


ONLY_BROKER: Final = Place(MASTER_ID)
"""The place of a broker without replicas."""


class Registration:
    """Keeps this broker registered with all name servers.

    Args:
        registrant: The constant part of its registration.
        name_servers: Base URLs.
        topics: Returns the current topics.
        version: Returns a number that grows with every change of a topic, across restarts.
        clock: Determines when the topics are due again.
        credentials: Of its requests.
        on_outcome: Called after each request to a name server, answered or not.
        place: Returns its present place among the brokers of its name.
    """

    def __init__(
        self,
        registrant: Registrant,
        name_servers: Sequence[str],
        *,
        topics: Callable[[], list[TopicConfig]],
        version: Callable[[], int],
        clock: Clock,
        credentials: Credentials,
        on_outcome: Callable[[], None] = lambda: None,
        place: Callable[[], Place] = lambda: ONLY_BROKER,
    ) -> None:
        self._transport = http1_transport(credentials)
        ordered: dict[str, dict[str, str]] = {}
        self._ordered = ordered
        self._broker_name = registrant.broker_name
        self._peers = [
            _Peer(
                registrant,
                url,
                self._transport,
                ordered,
                topics=topics,
                version=version,
                clock=clock,
                on_outcome=on_outcome,
                place=place,
            )
            for url in name_servers
        ]
        self._unregistration: asyncio.Task[None] | None = None

    @property
    def registered_count(self) -> int:
        """Return the number of name servers that have acknowledged this broker."""
        return sum(peer.is_registered for peer in self._peers)

    @property
    def refusal(self) -> ConflictError | None:
        """Return the reason why this broker must not work: another one has its name; else None."""
        refusals = [peer.refusal for peer in self._peers if peer.refusal is not None]
        return refusals[0] if refusals and not self.registered_count else None

    def ordered_at(self, topic: str) -> list[str]:
        """Return the other brokers that have *topic* as ordered, according to the name servers."""
        return sorted(
            {
                broker_name
                for entries in self._ordered.values()
                for broker_name, text in entries.items()
                if broker_name != self._broker_name and topic in ordered_topics_of(text)
            }
        )

    def start(self) -> None:
        """Begin to register."""
        for peer in self._peers:
            peer.loop.start()

    async def first_outcomes(self) -> None:
        """Return once each name server has answered, or one request has timed out."""
        await asyncio.gather(*(peer.has_outcome.wait() for peer in self._peers))

    def topics_changed(self) -> None:
        """Send all name servers the topics, and the broker's place, now."""
        for peer in self._peers:
            peer.topics_due_at = 0.0
            peer.changes += 1
            peer.loop.wake()

    async def told(self) -> None:
        """Return once the name servers that have this broker have acknowledged all changes so far.

        Each is waited for a second at most, whatever takes longer: it may be away, or slow, or the
        topics many. After that it is not waited for until it has acknowledged a registration.
        """
        await asyncio.gather(*(peer.told(peer.changes) for peer in self._peers))

    def begin_stop(self) -> None:
        """Leave the routes at once, while requests in progress still end."""
        if self._unregistration is None:
            self._unregistration = asyncio.create_task(self._unregister())

    async def stop(self) -> None:
        """Leave the routes; wait until each name server has answered or timed out."""
        self.begin_stop()
        assert self._unregistration is not None
        await self._unregistration
        await self._transport.close()

    async def _unregister(self) -> None:
        await asyncio.gather(*(peer.leave() for peer in self._peers))


class _Peer:
    """The registration at one name server."""

    def __init__(
        self,
        registrant: Registrant,
        url: str,
        transport: HttpTransport,
        ordered: dict[str, dict[str, str]],
        *,
        topics: Callable[[], list[TopicConfig]],
        version: Callable[[], int],
        clock: Clock,
        on_outcome: Callable[[], None],
        place: Callable[[], Place],
    ) -> None:
        self.is_registered = False
        self.refusal: ConflictError | None = None  # at the last answer
        self.has_outcome = asyncio.Event()
        self._has_asked = False  # for its registration, which may have arrived unanswered
        self.topics_due_at = 0.0  # by the monotonic clock; the first step finds them due
        self.changes = 0  # of topics or place
        self._told_changes = 0  # … that the name server has acknowledged
        self._is_asking = False  # for its registration, at present
        self._acknowledged_at: float | None = None  # by the monotonic clock; None: not here
        self._is_late = False  # a change was not acknowledged in time, and nothing has been since
        self._step_over = asyncio.Event()  # set when a step ends, and then another one
        self.loop = BackgroundLoop(
            f"registration at {url}", self._step, period_seconds=registrant.heartbeat_seconds
        )
        self._registrant = registrant
        self._url = url
        self._place = place
        self._transport = transport
        self._ordered = ordered  # the report of each name server, by its URL
        self._ordered_digest: str | None = None
        self._topics = topics
        self._version = version
        self._clock = clock
        self._on_outcome = on_outcome
        self._last_fault: str | None = None
        self._failures_in_a_row = 0

    async def leave(self) -> None:
        """Stop registering, and unregister."""
        await self.loop.stop(within_seconds=UNREGISTER_SECONDS)
        if not self._has_asked:
            return
        try:
            await send_model(
                self._transport,
                "DELETE",
                self._url,
                target_of(self._target(), store_host=self._registrant.store_host),
                timeout=UNREGISTER_SECONDS,
            )
        except (NotFoundError, ConflictError):
            pass  # it is not registered, or another broker is
        except ErucaError as error:
            _log.warning("not unregistered", namesrv=self._url, why=str(error))
        self.is_registered = False
        self._acknowledged_at = None
        self._release()

    async def told(self, changes: int) -> None:
        """Return once so many changes are acknowledged, or this peer is not to be waited for."""
        try:
            async with asyncio.timeout(TOLD_SECONDS):
                while self._told_changes < changes and self._has_broker and not self._is_late:
                    await self._step_over.wait()
        except TimeoutError:
            if self._told_changes < changes:
                self._is_late = True
                self._release()

    @property
    def _has_broker(self) -> bool:
        """Return whether the name server may have this broker in its routes.

        A request without an answer may have arrived. And a registration that failed leaves the one
        before in the routes until it expires there.
        """
        if self._is_asking:
            return True
        since = self._acknowledged_at
        return (
            since is not None and self._clock.monotonic() < since + self._registrant.expiry_seconds
        )

    def _release(self) -> None:
        """Let those who wait in :meth:`told` look again."""
        self._step_over.set()
        self._step_over = asyncio.Event()

    async def _step(self) -> float | None:
        now, changes = self._clock.monotonic(), self.changes
        with_topics = not self.is_registered or now >= self.topics_due_at
        if with_topics:
            # Set before the request: a change that comes meanwhile makes them due again.
            self.topics_due_at = now + self._registrant.registration_seconds
        self._is_asking = True
        try:
            result = await self._register(with_topics=with_topics)
            if result.needs_topics and not with_topics:
                await self._register(with_topics=True)
        except ConflictError as error:
            self.refusal = error
            self._acknowledged_at = None  # its routes have another broker
            self._failed(str(error))
        except (ErucaError, ValueError) as error:
            self._failed(str(error))
        else:
            self._told_changes = changes
            self._succeeded()
        finally:
            self._is_asking = False
        self._release()
        self.has_outcome.set()
        self._on_outcome()
        if not self._failures_in_a_row:
            return None
        heartbeat = self._registrant.heartbeat_seconds
        return doubled(min(RETRY_SECONDS, heartbeat), self._failures_in_a_row - 1, heartbeat)

    async def _register(self, *, with_topics: bool) -> RegistrationResult:
        registrant, place, target = self._registrant, self._place(), self._target()
        registration = BrokerRegistration(
            cluster=registrant.cluster,
            urls=dict(registrant.urls),
            store_host=registrant.store_host,
            epoch=place.epoch,
            role=place.role,
            replica_id=place.replica_id,
            former_store_hosts=list(place.former_store_hosts[:FORMER_STORE_HOST_COUNT_MAX]),
            data_version=self._version(),
            topics=self._topics() if with_topics else None,
            expiry_seconds=registrant.expiry_seconds,
            ordered_topics=self._ordered_elsewhere() if with_topics else None,
            ordered_topics_digest=self._ordered_digest,
        )
        self._has_asked = True
        answer = await send_model(
            self._transport,
            "PUT",
            self._url,
            target,
            registration,
            timeout=REGISTRATION_SECONDS_MAX,
        )
        result = parsed(RegistrationResult, answer, self._url + target)
        if result.ordered_topics is not None:
            self._ordered[self._url] = result.ordered_topics
            self._ordered_digest = result.ordered_topics_digest
        return result

    def _target(self) -> str:
        return f"/v1/brokers/{self._registrant.broker_name}/{self._place().broker_id}"

    def _ordered_elsewhere(self) -> dict[str, str] | None:
        """Return the known ordered topics of other brokers; this name server's come first."""
        said = [self._ordered.get(self._url, {}), *self._ordered.values()]
        known = {name: text for entries in reversed(said) for name, text in entries.items()}
        known.pop(self._registrant.broker_name, None)
        return known or None

    def _failed(self, fault: str) -> None:
        self.is_registered = False
        self._failures_in_a_row += 1
        if fault != self._last_fault:  # logged once, not with every heartbeat
            _log.warning("not registered", namesrv=self._url, why=fault)
            self._last_fault = fault

    def _succeeded(self) -> None:
        if not self.is_registered:
            _log.info("registered", namesrv=self._url)
        self.is_registered = True
        self._acknowledged_at = self._clock.monotonic()
        self._is_late = False
        self.refusal = None
        self._last_fault = None
        self._failures_in_a_row = 0
