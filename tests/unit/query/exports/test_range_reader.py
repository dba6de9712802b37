"""Reading ranges of a broker with replicas: from a standby, as long as it has all of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from eruca import AsyncClient
from eruca.contract.errors import BrokerUnreachableError, UnavailableError, ValidationError
from eruca.contract.exports import ExportRange
from eruca.contract.fields import BrokerRole
from eruca.contract.records import DamagedRecordError
from eruca.contract.routes import RouteBroker
from eruca.contract.wire import PullStatus
from eruca_query.exports.range_reader import RangeReader
from eruca_query.exports.topic_brokers import Place, TopicBrokers, place_of
from eruca_query.exports.workers.pool import ExportWorkers
from eruca_query.exports.workers.steps import RowForm, Step, Taken

pytestmark = pytest.mark.anyio
MASTER, STANDBY = "http://master", "http://standby"
ROWS = 5  # of a step
NOTHING = Taken(0, PullStatus.OFFSET_TOO_LARGE, 0, 0, 10)
DELETED = Taken(0, PullStatus.OFFSET_TOO_SMALL, 0, 7, 10)
DAMAGED = Taken(0, PullStatus.DAMAGED, 1, 0, 10, "rot")


class Rows:
    """A step's rows, which are there at once."""

    has_ended = False

    def __init__(self, taken: Taken) -> None:
        self._taken = taken
        self.is_forgotten = False

    async def taken(self) -> Taken:
        return self._taken

    def forget(self) -> None:
        self.is_forgotten = True


class Workers:
    """Workers that take ROWS messages, unless a broker answers otherwise."""

    def __init__(self, answers: dict[str, Taken | Exception]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int]] = []
        self.begun: list[Rows] = []

    async def begin(self, step: Step) -> Rows:
        self.asked.append((step.url, step.offset))
        answer = self.answers.get(step.url, Taken(0, PullStatus.FOUND, ROWS, 0, 100))
        if isinstance(answer, Exception):
            raise answer
        self.begun.append(Rows(answer))
        return self.begun[-1]


def reader_of(workers: Workers, place: Place) -> RangeReader:
    client = cast(AsyncClient, SimpleNamespace(settings=SimpleNamespace(timeout_seconds=3.0)))
    a_range = ExportRange(broker_name="a", queue_id=0, from_offset=0, to_offset=15)

    async def find() -> TopicBrokers:
        return TopicBrokers(client, "orders", {"a": place})

    return RangeReader(
        "orders",
        find,
        cast(ExportWorkers, workers),
        [a_range],
        cast(RowForm, None),
        patience_seconds=0,
    )


async def read(workers: Workers, place: Place) -> int:
    return sum([rows.count async for rows in reader_of(workers, place).rows()])


async def test_messages_are_read_from_a_standby() -> None:
    workers = Workers({})

    assert await read(workers, Place(MASTER, STANDBY)) == 15

    assert workers.asked == [(STANDBY, 0), (STANDBY, 5), (STANDBY, 10)]


@pytest.mark.parametrize(
    "answer", [NOTHING, DAMAGED, UnavailableError("away"), DamagedRecordError("cut")]
)
async def test_a_standby_that_lacks_something_is_left_for_the_master(answer: Any) -> None:  # noqa: ANN401
    workers = Workers({STANDBY: answer})

    assert await read(workers, Place(MASTER, STANDBY)) == 15

    assert workers.asked == [(STANDBY, 0), (MASTER, 0), (MASTER, 5), (MASTER, 10)]
    assert [rows.is_forgotten for rows in workers.begun[:-3]] == [True] * (len(workers.begun) - 3)


async def test_only_the_masters_refusal_counts() -> None:
    with pytest.raises(ValidationError, match="the queue ends at 10"):
        await read(Workers({STANDBY: NOTHING, MASTER: NOTHING}), Place(MASTER, STANDBY))


async def test_without_a_master_a_standby_is_all_there_is() -> None:
    workers = Workers({})
    assert await read(workers, Place(None, STANDBY)) == 15
    assert {url for url, _ in workers.asked} == {STANDBY}

    with pytest.raises(BrokerUnreachableError, match="broker a is away"):
        await read(Workers({}), Place(None, None))


@pytest.mark.parametrize("answer", [NOTHING, DAMAGED, DELETED])
async def test_without_a_master_nobody_says_that_messages_are_missing(answer: Taken) -> None:
    with pytest.raises(BrokerUnreachableError, match="broker a has no master now"):
        await read(Workers({STANDBY: answer}), Place(None, STANDBY))


@pytest.mark.parametrize(
    ("roles", "epoch", "place"),
    [
        ({0: "master"}, 0, Place("http://0", None)),
        ({0: "master", 1: "standby"}, 0, Place("http://0", None)),
        ({0: "master", 3: "standby", 2: "standby"}, 7, Place("http://0", "http://2")),
        ({0: "master", 2: "learner"}, 7, Place("http://0", None)),
        ({2: "standby"}, 7, Place(None, "http://2")),
    ],
)
def test_a_broker_is_read_at_its_master_and_at_its_first_standby(
    roles: dict[int, BrokerRole], epoch: int, place: Place
) -> None:
    broker = RouteBroker(
        cluster="c",
        broker_name="a",
        urls={broker_id: {"default": f"http://{broker_id}"} for broker_id in roles},
        store_hosts={},
        epoch=epoch,
        roles=roles,
    )

    assert place_of(broker, "default") == place
