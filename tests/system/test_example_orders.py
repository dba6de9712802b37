"""The example that ties orders in PostgreSQL to messages, killed at every step: both or neither."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

import eruca
from eruca.contract.transactions import TransactionSummary
from eruca_testing import SMALL_STORE, RunningCluster
from examples.orders.shop import GROUP, TOPIC, Shop
from examples.orders.warehouse import Warehouse
from support.forked import forked_to_the_end
from support.patience import PATIENCE_SECONDS
from support.postgres import embedded_server
from support.waiting import wait_until

DYING_SHOP = "support.dying_shop"
DYING_WAREHOUSE = "support.dying_warehouse"
ROOT = Path(__file__).parents[2]
BETWEEN_LINES = ["sent:begin", "sent:commit", "database:before", "database:after"]
LINES_MAX = 100
SETTINGS = SMALL_STORE | {
    "ERUCA_TXN_CHECKER_TIMEOUT_SECONDS": "1",
    "ERUCA_TXN_CHECKER_INTERVAL_SECONDS": "1",
    "ERUCA_TXN_CHECKER_CHECKS_MAX": "100",  # nobody is there to answer for a while
}


@dataclass(frozen=True, slots=True)
class World:
    """The services that the shop needs."""

    namesrv_url: str
    database_url: str

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ERUCA_NAMESRV_URLS": self.namesrv_url,
            "DATABASE_URL": self.database_url,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        }

    def die_at(self, step: str, program: str = DYING_SHOP) -> bool:
        """Place an order that is cut short at *step*; tell whether it came to that."""
        code, errors = forked_to_the_end(
            program, self.environment(), step, self.namesrv_url, self.database_url
        )
        assert code in (0, -signal.SIGKILL), errors
        return code != 0

    def example(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "examples.orders", *arguments],
            env=self.environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def customers(self) -> list[str]:
        return self._column("SELECT customer FROM orders")

    def known(self) -> list[str]:
        """Return the transactions whose outcome the database knows."""
        return self._column("SELECT transaction_id FROM order_messages")

    def ordered(self) -> list[str]:
        return sorted(self._column("SELECT order_id FROM orders"))

    def packed(self) -> list[str]:
        """Return the orders of all parcels; twice, if one was packed twice."""
        return sorted(self._column("SELECT order_id FROM parcels"))

    def _column(self, query: LiteralString) -> list[str]:
        with psycopg.connect(self.database_url) as connection:
            return [row[0] for row in connection.execute(query)]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with (
        embedded_server() as server,
        RunningCluster(brokers=2, txn_checkers=1, settings=SETTINGS) as cluster,
        eruca.Client(cluster.namesrv_urls) as client,
    ):
        client.admin.create_topic(TOPIC, queue_count=2)
        Shop(client, server.url).create_tables()
        yield World(cluster.namesrv_urls[0], server.url)


def undecided(client: eruca.Client) -> list[TransactionSummary]:
    return list(client.admin.transactions.undecided(producer_group=GROUP))


def who_decided(client: eruca.Client, transaction_id: str) -> tuple[str, str]:
    decision = client.admin.transactions.get(transaction_id).decision
    assert decision is not None
    return decision.outcome, decision.by


def settle(client: eruca.Client, world: World) -> None:
    """Have a member of the group answer checks until nothing is undecided."""
    with Shop(client, world.database_url):
        wait_until(lambda: not undecided(client))


def told(client: eruca.Client, count: int) -> list[str]:
    """Return the customers of the orders that the warehouse received: *count*, and no more."""
    customers: list[str] = []
    with client.pull_consumer(topics=TOPIC, start="earliest") as consumer:
        while messages := consumer.poll(wait_seconds=20 if len(customers) < count else 1):
            customers += [message.json()["customer"] for message in messages]
    return customers


def test_orders_and_messages_agree_wherever_the_shop_was_killed(world: World) -> None:
    steps = list(BETWEEN_LINES)
    assert all(map(world.die_at, BETWEEN_LINES))
    for number in count(1):
        step = f"line:{number}"
        steps.append(step)
        if not world.die_at(step):
            break
        assert number < LINES_MAX
    stored_at_once = set(world.customers())
    with eruca.Client(world.namesrv_url) as client:
        settle(client, world)
        stored = world.customers()
        delivered = told(client, len(stored))
        decided = {who_decided(client, transaction_id) for transaction_id in world.known()}
        done = world.example("compare")

    assert Counter(delivered) == Counter(stored) == Counter(stored_at_once)
    # The last one was not cut short; of the others some had got so far, and some had not.
    assert {steps[-1], "sent:commit", "database:after"} < stored_at_once
    assert {"line:1", "sent:begin", "database:before"}.isdisjoint(stored_at_once)
    assert len(steps) > 10
    assert decided == {("commit", "producer"), ("commit", "check"), ("rollback", "check")}
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout == f"{len(stored)} orders, {len(stored)} messages\n"


def test_an_order_that_is_stored_too_late_is_not_stored(world: World) -> None:
    """The checks have been answered while a process slept between its message and its order."""
    before = world.customers()
    with eruca.Client(world.namesrv_url) as client, Shop(client, world.database_url) as other:
        transactions = client.transaction_producer(GROUP)
        with transactions.transaction(eruca.Message.json(TOPIC, {"customer": "late"})) as half:
            half.conclude("unknown")
        settle(client, world)
        detail = client.admin.transactions.get(half.transaction_id)
        with (
            psycopg.connect(world.database_url) as connection,
            pytest.raises(psycopg.errors.UniqueViolation),
        ):
            connection.execute(
                "INSERT INTO order_messages VALUES (%s, 'commit')", (half.transaction_id,)
            )
        other.place_order("in-time", 1)

    assert detail.state == "rolled_back"
    assert sorted(world.customers()) == sorted([*before, "in-time"])


def test_each_order_is_packed_once_wherever_the_warehouse_was_killed(world: World) -> None:
    with eruca.Client(world.namesrv_url) as client, Shop(client, world.database_url) as shop:
        settle(client, world)  # what other tests have left
        warehouse = Warehouse(client, world.database_url, invisible_seconds=1)
        warehouse.create_tables()
        for number in range(4):
            shop.place_order(f"packed-{number}", number)
        steps = ["database:before", "database:after", "sent:ack"]
        deaths = [world.die_at(step, DYING_WAREHOUSE) for step in steps]
        assert deaths == [True] * 3
        until = time.monotonic() + PATIENCE_SECONDS
        while world.packed() != world.ordered():
            assert time.monotonic() < until
            warehouse.pack(wait=1)
        again = warehouse.pack(wait=3)  # what a killed packer had in hand has come by then
        packed = world.example("pack")

    assert again == []
    assert (packed.returncode, packed.stdout, packed.stderr) == (0, "", "")
    assert world.packed() == world.ordered()


def test_without_a_database_url_it_says_what_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders", "compare"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "error: DATABASE_URL is not set" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["place", "answer", "pack", "compare"])
def test_a_database_that_is_away_is_said_on_one_line(command: str) -> None:
    away = World("http://127.0.0.1:1", "postgresql://eruca@127.0.0.1:1/orders").example(command)

    assert (away.returncode, away.stdout) == (1, "")
    assert away.stderr.startswith("error: DATABASE_URL: connection failed: ")
    assert away.stderr.count("\n") == 1


def test_a_cluster_that_is_away_is_said_on_one_line() -> None:
    with embedded_server() as server:
        away = World("http://127.0.0.1:1", server.url).example("place")

    assert (away.returncode, away.stdout) == (1, "")
    *warnings, error = away.stderr.splitlines()
    assert error.startswith("error: ")
    assert all(line.startswith("cannot receive checks from any") for line in warnings), away.stderr


def test_before_the_first_order_there_is_nothing_on_either_side() -> None:
    with embedded_server() as server, RunningCluster() as cluster:
        compared = World(cluster.namesrv_urls[0], server.url).example("compare")

    assert (compared.returncode, compared.stderr) == (0, "")
    assert compared.stdout == "0 orders, 0 messages\n"


def test_the_example_runs_as_its_own_words_say(world: World) -> None:
    with eruca.Client(world.namesrv_url) as client, client.producer() as producer:
        producer.send(eruca.Message("orders", b"order 17"))  # as the README's first example does
    placed = world.example("place", "3")
    answering = subprocess.Popen(
        [sys.executable, "-m", "examples.orders", "answer"],
        env=world.environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert answering.stdout is not None
    said = answering.stdout.readline()
    answering.send_signal(signal.SIGINT)
    answering.communicate(timeout=PATIENCE_SECONDS)
    compared = world.example("compare")

    assert (placed.returncode, placed.stderr) == (0, "")
    assert len(placed.stdout.splitlines()) == 3
    assert said == "answering checks until Ctrl-C\n"
    assert answering.returncode == 0
    assert (compared.returncode, compared.stderr) == (0, ""), compared.stdout
