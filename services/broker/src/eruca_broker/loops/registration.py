"""Registration: telling every name server that this broker lives, and which topics it has.

Each name server has a loop of its own, so that one that is down or slow delays no other. A loop
sends a light heartbeat every few seconds; its topics as well at the start, every half minute, when
they have changed, and when the name server says it knows others. At the end it asks each to forget
this broker, unless another has taken its place there.

A name server refuses a broker whose name another one has there. One that is refused, and registered
nowhere, must not work: no consumer would see what it is sent (:attr:`Registration.refusal`).

Name servers say which topics of other brokers are ordered, and are told it when they have just
started (``eruca_namesrv.ordered_topics``): one that is away cannot tell them itself.
Nor is such a topic created here by sending to it, or its sharding keys would lie in two queues.

Source: RocketMQ 5.3, ``BrokerController.registerBrokerAll``, ``BrokerOuterAPI``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from eruca.contract.errors import ConflictError, ErucaError, NotFoundError
from eruca.contract.limits import REGISTRATION_SECONDS_MAX
from eruca.contract.ordered_topics import ordered_topics_of
from eruca.contract.routes import BrokerRegistration, RegistrationResult
from eruca.contract.topics import TopicConfig
from eruca.services.cluster import parsed, send_model
from eruca.services.http import Credentials, HttpTransport, httpx_transport, target_of
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop

UNREGISTER_SECONDS: Final = 2.0  # less than for a registration: somebody waits for the stop

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Registrant:
    """The constant part of a broker's registration at name servers."""

    cluster: str
    broker_name: str
    broker_id: int
    urls: Mapping[str, str]
    store_host: str
    heartbeat_seconds: float
    registration_seconds: float
    expiry_seconds: float


class Registration:
    """Keeps this broker registered with all name servers.

    Args:
        registrant: Who registers.
        name_servers: Base URLs.
        topics: Returns the topics as they are now.
        version: Returns a number that grows with every change of a topic, across restarts.
        clock: Tells when the topics are due again.
        credentials: Of its requests.
        on_outcome: Called after each request to a name server, answered or not.
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
    ) -> None:
        self._transport = httpx_transport(credentials)
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
            )
            for url in name_servers
        ]
        self._unregistration: asyncio.Task[None] | None = None

    @property
    def registered_count(self) -> int:
        """The number of name servers that have acknowledged this broker."""
        return sum(peer.is_registered for peer in self._peers)

    @property
    def refusal(self) -> ConflictError | None:
        """The reason why this broker may not work: another one has its name; else None."""
        refusals = [peer.refusal for peer in self._peers if peer.refusal is not None]
        return refusals[0] if refusals and not self.registered_count else None

    def ordered_at(self, topic: str) -> list[str]:
        """Return which other brokers have *topic* as ordered, as far as name servers have said."""
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
        """Return once each name server has answered, or has not within the time of a request."""
        await asyncio.gather(*(peer.has_outcome.wait() for peer in self._peers))

    def topics_changed(self) -> None:
        """Tell all name servers the topics now."""
        for peer in self._peers:
            peer.topics_due_at = 0.0
            peer.loop.wake()

    def begin_stop(self) -> None:
        """Leave the routes at once, while requests under way still end."""
        if self._unregistration is None:
            self._unregistration = asyncio.create_task(self._unregister())

    async def stop(self) -> None:
        """Leave the routes, and wait until the name servers know it or do not answer."""
        self.begin_stop()
        assert self._unregistration is not None
        await self._unregistration
        await self._transport.close()

    async def _unregister(self) -> None:
        await asyncio.gather(*(peer.leave() for peer in self._peers))


class _Peer:
    """One name server, as this broker deals with it."""

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
    ) -> None:
        self.is_registered = False
        self.refusal: ConflictError | None = None  # as of the last answer
        self.has_outcome = asyncio.Event()
        self._has_asked = False  # to be registered; it may be, even where no answer came
        self.topics_due_at = 0.0  # by the monotonic clock; the first step finds them due
        self.loop = BackgroundLoop(
            f"registration at {url}", self._step, period_seconds=registrant.heartbeat_seconds
        )
        self._registrant = registrant
        self._url = url
        self._target = f"/v1/brokers/{registrant.broker_name}/{registrant.broker_id}"
        self._transport = transport
        self._ordered = ordered  # what each name server has said, by its URL
        self._ordered_digest: str | None = None
        self._topics = topics
        self._version = version
        self._clock = clock
        self._on_outcome = on_outcome
        self._last_fault: str | None = None

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
                target_of(self._target, store_host=self._registrant.store_host),
                timeout=UNREGISTER_SECONDS,
            )
        except (NotFoundError, ConflictError):
            pass  # it is not there, or another broker is
        except ErucaError as error:
            _log.warning("not unregistered", namesrv=self._url, why=str(error))
        self.is_registered = False

    async def _step(self) -> None:
        now = self._clock.monotonic()
        with_topics = not self.is_registered or now >= self.topics_due_at
        if with_topics:
            # Set before asking: a change that comes meanwhile makes them due again.
            self.topics_due_at = now + self._registrant.registration_seconds
        try:
            result = await self._register(with_topics=with_topics)
            if result.needs_topics and not with_topics:
                await self._register(with_topics=True)
        except ConflictError as error:
            self.refusal = error
            self._failed(str(error))
        except (ErucaError, ValueError) as error:
            self._failed(str(error))
        else:
            self._succeeded()
        self.has_outcome.set()
        self._on_outcome()

    async def _register(self, *, with_topics: bool) -> RegistrationResult:
        registrant = self._registrant
        registration = BrokerRegistration(
            cluster=registrant.cluster,
            urls=dict(registrant.urls),
            store_host=registrant.store_host,
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
            self._target,
            registration,
            timeout=REGISTRATION_SECONDS_MAX,
        )
        result = parsed(RegistrationResult, answer, self._url + self._target)
        if result.ordered_topics is not None:
            self._ordered[self._url] = result.ordered_topics
            self._ordered_digest = result.ordered_topics_digest
        return result

    def _ordered_elsewhere(self) -> dict[str, str] | None:
        """Return what is known of other brokers' ordered topics, this name server's word first."""
        said = [self._ordered.get(self._url, {}), *self._ordered.values()]
        known = {name: text for entries in reversed(said) for name, text in entries.items()}
        known.pop(self._registrant.broker_name, None)
        return known or None

    def _failed(self, fault: str) -> None:
        self.is_registered = False
        if fault != self._last_fault:  # said once, not with every heartbeat
            _log.warning("not registered", namesrv=self._url, why=fault)
            self._last_fault = fault

    def _succeeded(self) -> None:
        if not self.is_registered:
            _log.info("registered", namesrv=self._url)
        self.is_registered = True
        self.refusal = None
        self._last_fault = None
