"""subscriptionGroup.json: groups in RocketMQ's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eruca_broker.core.state.group_events import (
    CustomizedDelays,
    ExponentialDelays,
    GroupPut,
    GroupSettings,
)
from eruca_broker.core.state.group_state import DEFAULT_SETTINGS, Group
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.config import config_snapshots
from eruca_broker.store.config.config_groups import group_config, group_puts
from eruca_broker.store.config.config_snapshots import ConfigSnapshot
from eruca_broker.store.config.rocketmq_json import UnreadableConfigError

AS_ROCKETMQ_WRITES: dict[str, Any] = {
    "groupName": "billing",
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
    "attributes": {},
}


def read(known: dict[str, Group] | None = None, **fields: object) -> list[GroupPut]:
    file = {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 1_795_248_733_532},
        "subscriptionGroupTable": {"billing": AS_ROCKETMQ_WRITES | fields},
    }
    return list(group_puts(file, known or {}))


def test_a_group_with_the_defaults_is_written_as_rocketmq_does() -> None:
    assert group_config("billing", DEFAULT_SETTINGS) == AS_ROCKETMQ_WRITES


def test_a_group_with_the_defaults_is_read_as_one() -> None:
    assert read() == [GroupPut("billing", GroupSettings(), 1_795_248_733_532)]


@pytest.mark.parametrize(
    "settings",
    [
        GroupSettings(retries_max=3, ordered=True),
        GroupSettings(consume_enabled=False, broadcast_enabled=False),
        GroupSettings(retry_policy=CustomizedDelays((1.0, 2.5))),
        GroupSettings(retry_policy=ExponentialDelays(1.0, 3.0, 60.0)),
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, settings: GroupSettings) -> None:
    state = BrokerState()
    state.apply(GroupPut("billing", settings, 1), 1)
    config_snapshots.save(tmp_path, ConfigSnapshot.of(state, now_ms=5))

    assert config_snapshots.load(tmp_path).groups == [GroupPut("billing", settings, 5)]
    assert config_snapshots.load(tmp_path, known=state.groups).groups == []


def test_what_rocketmq_has_no_word_for_stays() -> None:
    known = Group("billing", GroupSettings(start="earliest", subscription_mode="per_member"))

    assert read({"billing": known}) == []
    [put] = read({"billing": known}, retryMaxTimes=2)
    assert put.settings.start == "earliest"
    assert put.settings.subscription_mode == "per_member"
    assert put.settings.retries_max == 2


@pytest.mark.parametrize(("there", "here"), [(-1, 0), (5_000, 1_000)])
def test_numbers_beyond_our_limits_are_the_nearest_we_have(there: int, here: int) -> None:
    [put] = read(retryMaxTimes=there)

    assert put.settings.retries_max == here


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ([1_000, 5_000, 10_000, 30_000], (10.0, 30.0)),
        ([1_000, 5_000], (5.0,)),
        ([1_000], (1.0,)),
    ],
)
def test_the_first_retry_takes_the_third_of_rocketmqs_delays(
    there: list[int], here: tuple[float, ...]
) -> None:
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": there}}

    [put] = read(groupRetryPolicy=policy)

    assert put.settings.retry_policy == CustomizedDelays(here)


def test_exponential_delays_have_rocketmq_s_defaults() -> None:
    [put] = read(groupRetryPolicy={"type": "EXPONENTIAL"})

    assert put.settings.retry_policy == ExponentialDelays(5.0, 2.0, 7_200.0)


def test_groups_that_every_rocketmq_broker_has_are_left_out() -> None:
    names = ("TOOLS_CONSUMER", "CID_ONSAPI_PULL", "CID_RMQ_SYS_TRANS")
    table = {name: AS_ROCKETMQ_WRITES | {"groupName": name} for name in names}

    assert list(group_puts({"subscriptionGroupTable": table}, {})) == []


def test_a_file_that_is_not_of_groups_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    content = {"subscriptionGroupTable": {"billing": 5}}
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps(content))

    with pytest.raises(UnreadableConfigError, match="config"):
        config_snapshots.load(tmp_path)
