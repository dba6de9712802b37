"""``config/subscriptionGroup.json``: groups in RocketMQ's format, written for it and read from it.

Some settings do not exist there, such as a group's start and its members' subscriptions: they are
kept as they are. Times of retry policies are milliseconds there. The first two of a list are never
used: a message's first retry takes the third.

Source: RocketMQ 5.3, ``SubscriptionGroupConfig``, ``GroupRetryPolicy``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from eruca.contract.limits import DELAY_SECONDS_MAX, RETRY_DELAY_COUNT_MAX, RETRY_TIMES_MAX
from eruca.contract.names import is_reserved_group
from eruca_broker.core.consuming.retry_policy import STEPS_SKIPPED
from eruca_broker.core.state.group_events import (
    CustomizedDelays,
    ExponentialDelays,
    GroupPut,
    GroupSettings,
)
from eruca_broker.core.state.group_state import DEFAULT_SETTINGS, Group

_MULTIPLIER_MAX: Final = 100.0  # the API's maximum


def group_config(name: str, settings: GroupSettings) -> dict[str, Any]:
    """Return a group in RocketMQ's format."""
    return {
        "groupName": name,
        "consumeEnable": settings.consume_enabled,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": settings.broadcast_enabled,
        "consumeMessageOrderly": settings.ordered,
        "retryQueueNums": 1,
        "retryMaxTimes": settings.retries_max,
        "groupRetryPolicy": _policy_config(settings.retry_policy),
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "groupSysFlag": 0,
        "consumeTimeoutMinute": 15,
        "attributes": {},
    }


def group_puts(file: Mapping[str, Any], known: Mapping[str, Group]) -> Iterator[GroupPut]:
    """Yield the groups in the file's content that differ from *known*.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: It is not as RocketMQ writes it.
    """
    version = file.get("dataVersion") or {}
    at = int(version.get("timestamp") or 0)
    for name, fields in file.get("subscriptionGroupTable", {}).items():
        if is_reserved_group(name):  # every RocketMQ broker lists its own; users have none of them
            continue
        name.encode()  # raise on an unpaired surrogate, which no record can hold
        before = known[name].settings if name in known else DEFAULT_SETTINGS
        settings = _settings(fields, before)
        if name not in known or settings != before:
            yield GroupPut(name, settings, at)


def _settings(fields: Mapping[str, Any], before: GroupSettings) -> GroupSettings:
    return msgspec.structs.replace(
        before,
        retries_max=min(max(int(fields.get("retryMaxTimes", 16)), 0), RETRY_TIMES_MAX),
        retry_policy=_policy(fields.get("groupRetryPolicy") or {}),
        ordered=bool(fields.get("consumeMessageOrderly", False)),
        consume_enabled=bool(fields.get("consumeEnable", True)),
        broadcast_enabled=bool(fields.get("consumeBroadcastEnable", True)),
    )


def _policy(fields: Mapping[str, Any]) -> CustomizedDelays | ExponentialDelays | None:
    customized = fields.get("customizedRetryPolicy") or {}
    exponential = fields.get("exponentialRetryPolicy") or {}
    if fields.get("type") == "EXPONENTIAL":
        multiplier = float(exponential.get("multiplier", 2))
        return ExponentialDelays(
            _seconds(exponential.get("initial", 5_000)),
            min(max(multiplier, 1.0), _MULTIPLIER_MAX),
            _seconds(exponential.get("max", 7_200_000)),
        )
    if delays := customized.get("next"):
        used = delays[STEPS_SKIPPED:] or delays[-1:]
        return CustomizedDelays(tuple(map(_seconds, used[:RETRY_DELAY_COUNT_MAX])))
    return None  # its own delays are the delay levels


def _seconds(ms: Any) -> float:  # noqa: ANN401 - it comes from JSON
    """Return milliseconds as seconds, limited to the API's maximum."""
    return min(max(int(ms), 0), DELAY_SECONDS_MAX * 1000) / 1000


def _policy_config(policy: CustomizedDelays | ExponentialDelays | None) -> dict[str, Any]:
    match policy:
        case CustomizedDelays(delays_seconds=delays):
            next_ms = [round(seconds * 1000) for seconds in delays]
            next_ms = [next_ms[0]] * STEPS_SKIPPED + next_ms
            return {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": next_ms}}
        case ExponentialDelays():
            growing = {
                "initial": round(policy.initial_seconds * 1000),
                "max": round(policy.seconds_max * 1000),
                "multiplier": max(round(policy.multiplier), 1),  # RocketMQ's is an integer
            }
            return {"type": "EXPONENTIAL", "exponentialRetryPolicy": growing}
    return {"type": "CUSTOMIZED"}
