"""Convert groups between the contract's models and those of the state."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, cast

from eruca.contract import groups as contract
from eruca.contract.names import is_reserved_group
from eruca_broker.core.consuming.membership import Beat, Session
from eruca_broker.core.records.times import moment, ms_not_before
from eruca_broker.core.state.group_events import (
    CustomizedDelays,
    ExponentialDelays,
    GroupSettings,
    Subscribed,
)
from eruca_broker.core.state.group_state import Group, Start


def settings_of(settings: contract.GroupSettings) -> GroupSettings:
    """Return the settings in the form of the state."""
    policy: CustomizedDelays | ExponentialDelays | None = None
    match settings.retry_policy:
        case contract.CustomizedRetryPolicy(delays_seconds=delays):
            policy = CustomizedDelays(tuple(delays))
        case contract.ExponentialRetryPolicy() as growing:
            policy = ExponentialDelays(
                growing.initial_seconds, growing.multiplier, growing.seconds_max
            )
    return GroupSettings(
        start=start_of(settings.start),
        retries_max=settings.retries_max,
        retry_policy=policy,
        ordered=settings.ordered,
        consume_enabled=settings.consume_enabled,
        broadcast_enabled=settings.broadcast_enabled,
        subscription_mode=settings.subscription_mode,
    )


def start_of(start: str | datetime) -> str | int:
    """Return the start of groups in the form of the state: a name, or ms since the epoch."""
    return ms_not_before(start) if isinstance(start, datetime) else start


def group_config(group: Group, members: Iterable[Session]) -> contract.GroupConfig:
    """Return *group* in the form of the contract."""
    settings = group.settings
    live = list(members)
    subscriptions: Iterable[Subscribed] = group.subscriptions
    if settings.subscription_mode == "per_member":
        subscriptions = sorted(
            {entry for session in live if session.beat for entry in session.beat.subscriptions},
            key=lambda entry: (entry.topic, entry.filter),
        )
    return contract.GroupConfig(
        group=group.name,
        start=_start(settings.start),
        retries_max=settings.retries_max,
        retry_policy=_retry_policy(settings.retry_policy),
        ordered=settings.ordered,
        consume_enabled=settings.consume_enabled,
        broadcast_enabled=settings.broadcast_enabled,
        subscription_mode=settings.subscription_mode,
        created_at=None if group.created_at_ms is None else moment(group.created_at_ms),
        subscription_version=group.subscription_version,
        subscriptions=[subscription(entry) for entry in subscriptions],
        members=len(live),
        is_system=is_reserved_group(group.name),
    )


def members(group: Group, sessions: Iterable[Session]) -> list[contract.Member]:
    """Return members of a group in the form of the contract."""
    locks: dict[str, list[contract.QueueRef]] = {}  # by client id
    for topic, queue_id in sorted(group.locks):
        owner = group.locks[topic, queue_id].owner.client_id
        locks.setdefault(owner, []).append(contract.QueueRef(topic=topic, queue_id=queue_id))
    # Nearly always their subscriptions are equal, and these are most of the text.
    subscribed: dict[tuple[Subscribed, ...], list[contract.Subscription]] = {}
    shown: list[contract.Member] = []
    for session in sessions:
        beat = session.beat
        assert beat is not None
        subscriptions = subscribed.get(beat.subscriptions)
        if subscriptions is None:
            subscriptions = [subscription(entry) for entry in beat.subscriptions]
            subscribed[beat.subscriptions] = subscriptions
        shown.append(_member(session, beat, subscriptions, locks.get(session.client_id, [])))
    return shown


def _member(
    session: Session,
    beat: Beat,
    subscriptions: list[contract.Subscription],
    locks: list[contract.QueueRef],
) -> contract.Member:
    return contract.Member(
        client_id=session.client_id,
        incarnation=session.incarnation,
        address=beat.address,
        message_model=cast(contract.MessageModel, beat.message_model),
        consume_type=cast(contract.ConsumeType, beat.consume_type),
        is_static=beat.is_static,
        subscriptions=subscriptions,
        joined_at=moment(session.joined_at_ms),
        last_seen_at=moment(session.seen_at_ms),
        session_seconds=session.session_seconds,
        handling=beat.handling,
        locks=locks,
    )


def subscription(entry: Subscribed) -> contract.Subscription:
    """Return a subscription in the form of the contract; it was checked on arrival."""
    return contract.Subscription.model_construct(
        topic=entry.topic, filter=entry.filter, filter_type=entry.filter_type
    )


def start_position(start: Start | None) -> contract.StartPosition | None:
    """Return a group's start in the form of the contract."""
    if start is None:
        return None
    return contract.StartPosition(offset=start.offset, reason=start.reason, at=moment(start.at_ms))


def _start(start: str | int) -> Literal["earliest", "latest"] | datetime:
    if isinstance(start, int):
        return moment(start)
    return "earliest" if start == "earliest" else "latest"


def _retry_policy(
    policy: CustomizedDelays | ExponentialDelays | None,
) -> contract.RetryPolicy | None:
    match policy:
        case CustomizedDelays(delays_seconds=delays):
            return contract.CustomizedRetryPolicy.model_construct(delays_seconds=list(delays))
        case ExponentialDelays():
            return contract.ExponentialRetryPolicy.model_construct(
                initial_seconds=policy.initial_seconds,
                multiplier=policy.multiplier,
                seconds_max=policy.seconds_max,
            )
    return None
