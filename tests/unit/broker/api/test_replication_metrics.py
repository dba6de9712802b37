"""The metrics of a replica: what its role can know, and nothing else."""

from __future__ import annotations

from eruca.contract.replication import ReplicationStatus
from eruca_broker.api.metrics import ReplicationMetrics
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.settings import BrokerSettings
from support.group_rows import name, status


class Told(Replication):
    """A part in a group that a test says."""

    def __init__(self, told: ReplicationStatus) -> None:
        self._told = told

    def status(self) -> ReplicationStatus:
        return self._told


def samples(told: ReplicationStatus) -> dict[tuple[str, ...], float]:
    """Return the values by metric and labels; all have the broker's name."""
    metrics = ReplicationMetrics(Told(told), BrokerSettings(name="broker-a"))
    found = {}
    for family in metrics.collect():
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("broker") == "broker-a"
            short = sample.name.removeprefix("eruca_broker_")
            found[short, *labels.values()] = sample.value
    return found


FOLLOWER = {
    "replica_id": 2,
    "uid": "uid-2",
    "in_sync": False,
    "end": 900,
    "behind_bytes": 100,
    "silent_seconds": 0.1,
    "behind_seconds": 1.0,
}


def test_a_master_knows_its_copies_and_how_far_behind_each_replica_is() -> None:
    master = status(1, role="master", in_sync=[name(1)], replicas=[FOLLOWER])

    assert samples(master) == {
        ("role", "master"): 1,
        ("role", "taking over"): 0,
        ("role", "standby"): 0,
        ("role", "demoted"): 0,
        ("epoch",): 7,
        ("copies",): 1,
        ("replica_behind_bytes", "2"): 100,
        ("replica_keep_left_bytes", "2"): 32 * 1024**3 - 100,
    }


def test_a_standby_knows_its_clock_beside_its_masters() -> None:
    following = {
        "state": "following",
        "reason": None,
        "master_url": "http://127.0.0.1:10911",
        "behind_bytes": 0,
        "behind_seconds": 0.0,
        "last_contact_at": None,
        "clock_skew_seconds": -0.7,
    }

    found = samples(status(2, following=following))

    assert found["role", "standby"] == 1
    assert found["clock_skew_seconds",] == -0.7
    assert ("copies",) not in found


def test_what_is_unknown_has_no_sample() -> None:
    following = {
        "state": "connecting",
        "reason": "connection refused",
        "master_url": "http://127.0.0.1:10911",
        "behind_bytes": None,
        "behind_seconds": None,
        "last_contact_at": None,
        "clock_skew_seconds": None,
    }

    assert ("clock_skew_seconds",) not in samples(status(2, following=following))


def test_a_broker_without_replicas_has_no_such_metric() -> None:
    assert samples(status(1, role="standalone")) == {}
