"""Replicas: from which one to read, and which addresses lead to them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca.contract.fields import BrokerRole
from eruca.contract.records import Host
from eruca.contract.routes import BrokerAddress, BrokerGroup
from eruca.core.routing.replicas import holder_of, in_sync_standbys, reader_of, store_hosts_of

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def broker(broker_id: int, role: BrokerRole, *, epoch: int = 8) -> BrokerAddress:
    return BrokerAddress(
        broker_id=broker_id,
        epoch=epoch,
        role=role,
        urls={"default": f"http://b{broker_id}"},
        store_host=f"10.0.0.{broker_id + 1}:1",
        data_version=1,
        last_seen_at=NOW,
        expires_at=NOW,
    )


def group(*brokers: BrokerAddress, former: tuple[str, ...] = ()) -> BrokerGroup:
    return BrokerGroup(
        cluster="c",
        broker_name="broker-a",
        epoch=max((b.epoch for b in brokers), default=0),
        brokers=list(brokers),
        former_store_hosts=list(former),
    )


def number_of(found: BrokerAddress | None) -> int | None:
    return None if found is None else found.broker_id


@pytest.mark.parametrize(
    ("brokers", "reader"),
    [
        ([broker(2, "standby"), broker(0, "master")], 0),
        ([broker(1, "learner"), broker(2, "standby")], 2),
        ([broker(1, "learner")], 1),
        ([broker(0, "master", epoch=0), broker(1, "standby", epoch=0)], 0),
        ([broker(1, "standby", epoch=0)], None),
        ([], None),
    ],
)
def test_a_reader_asks_the_master_or_the_best_replica_that_is_there(
    brokers: list[BrokerAddress], reader: int | None
) -> None:
    assert number_of(reader_of(group(*brokers))) == reader


def test_only_standbys_of_the_current_epoch_serve_instead_of_the_master() -> None:
    replicas = [
        broker(0, "master"), broker(1, "standby"), broker(2, "learner"),
        broker(3, "standby", epoch=7),
    ]  # fmt: skip

    assert [b.broker_id for b in in_sync_standbys(group(*replicas))] == [1]
    assert in_sync_standbys(group(broker(1, "standby", epoch=0))) == []


@pytest.mark.parametrize("text", ["10.0.0.1:1", "10.0.0.3:1", "10.9.9.9:1"])
def test_every_address_of_a_group_leads_to_its_master(text: str) -> None:
    found = group(broker(0, "master"), broker(2, "standby"), former=("10.9.9.9:1",))

    assert number_of(holder_of(found, Host.from_text(text))) == 0
    assert Host.from_text(text) in store_hosts_of(found)
    assert holder_of(found, Host.from_text("10.8.8.8:1")) is None


def test_brokers_that_are_no_group_have_only_their_own_records() -> None:
    found = group(broker(0, "master", epoch=0), broker(1, "standby", epoch=0))

    assert number_of(holder_of(found, Host.from_text("10.0.0.2:1"))) == 1
    assert store_hosts_of(found) == {Host.from_text("10.0.0.1:1")}
    assert store_hosts_of(group()) == set()
