"""``python -m demo.flights``: a year of flights through a cluster and back, every number checked.

It starts a cluster of two brokers, with data outside the repository, and stops it again. With
``--keep`` the cluster runs on until Ctrl-C, so that its console can be looked at.

Exit codes: 0 if all numbers agree, 1 if they do not or something failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

import eruca
from demo import boarding, crew, failover, journey, lake, lives, report, sights, tickets
from demo.bars import Bars
from demo.dataset import FLIGHT_COUNT, DatasetError, find_data_file, read_flights
from demo.ledger import Ledger
from eruca.contract.limits import KEY_QUERY_COUNT_MAX
from eruca_deploy.cluster import LocalCluster, StartError
from eruca_deploy.ports import PortTakenError

INTERRUPTED: Final = 130
SEND_SECONDS: Final = 30.0  # for one message; on a slow machine a full buffer takes a while
ANSWER_SECONDS: Final = 30.0  # for any other request
LIVE_COUNT: Final = 500  # flights sent one by one
SETTINGS: Final = {
    "ERUCA_BROKER_SEGMENT_BYTES": str(256 * 1024 * 1024),
    "DATABASE_URL": "",  # keep all data together, whatever the environment says
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    kept = Path(tempfile.mkdtemp(prefix="eruca-demo-")) if options.keep else None
    try:
        return asyncio.run(_run(console, options.limit, kept))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped")
        return INTERRUPTED
    except (
        DatasetError,
        PortTakenError,
        StartError,
        failover.StalledError,
        lake.LakeError,
        eruca.ErucaError,
    ) as error:
        Console(stderr=True, highlight=False, markup=False).print(f"error: {error}")
        return 1
    finally:
        if kept is not None:
            console.print(
                f"data kept in {kept}; explore it with: make up ARGS='--data {kept} --brokers 2"
                f" --replicas {failover.REPLICAS}'"
            )


async def _run(console: Console, limit: int | None, kept: Path | None) -> int:
    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    path = find_data_file()
    started_at = time.perf_counter()
    count = min(limit or FLIGHT_COUNT, FLIGHT_COUNT)
    console.print(
        "starting a name server, two brokers with two replicas each, a controller, a transaction"
        " checker, a query service and a console …"
    )
    async with (
        LocalCluster(
            brokers=2,
            replicas=failover.REPLICAS,
            txn_checkers=1,
            queries=1,
            consoles=1,
            data_dir=kept,
            settings=SETTINGS,
        ) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls, timeout_seconds=ANSWER_SECONDS) as client,
    ):
        console.print(f"running: {', '.join(service.url for service in cluster.plan.services)}")
        faults, pages = await _fly(console, client, cluster.namesrv_urls[0], path, count)
        faults += await _fill_lake(console, cluster.query_urls[0], path, count, kept)
        faults += await _survive(console, client, cluster, path)
        report.show_verdict(console, faults, time.perf_counter() - started_at)
        report.show_sights(console, cluster.console_urls[0], pages, is_running=kept is not None)
        if kept is not None:
            await _until_stopped(console)
    return 1 if faults else 0


async def _until_stopped(console: Console) -> None:
    """Wait for Ctrl-C or SIGTERM, which then are no failure."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    console.print("The cluster runs until Ctrl-C.")
    await stop.wait()


async def _fly(
    console: Console, client: eruca.AsyncClient, namesrv_url: str, path: Path, count: int
) -> tuple[list[str], dict[str, str]]:
    """Send, pull, share, find and time the flights, and sell tickets.

    Return the discrepancies, and the console's pages of what was done.
    """
    for topic in (journey.TOPIC, journey.LIVE_TOPIC, tickets.TOPIC, boarding.TOPIC):
        await client.admin.create_topic(topic, queue_count=journey.QUEUES_PER_BROKER)
    ledger = Ledger()
    live_count = min(LIVE_COUNT, count)
    sold = list(read_flights(path, limit=min(tickets.SALES_COUNT, count)))
    called = list(read_flights(path, limit=min(boarding.CALLS_COUNT, count)))
    with Bars(console) as bars:
        async with client.producer(send_timeout_seconds=SEND_SECONDS) as producer:
            flights = read_flights(path, limit=count)
            sent, samples = await journey.send_flights(
                producer, flights, ledger, bars.add("sending", count)
            )
        async with client.pull_consumer(topics=journey.TOPIC) as consumer:
            pulled = await journey.pull_flights(consumer, ledger, bars.add("pulling", ledger.sent))
        shift = await crew.work_a_shift(client, namesrv_url, count, bars.add("group", count))
        live = await journey.fly_live(
            client, read_flights(path), live_count, bars.add("one by one", live_count)
        )
        sales, calls = await asyncio.gather(
            tickets.sell_tickets(client, sold, bars.add("tickets", len(sold))),
            boarding.call_passengers(client, called, bars.add("boarding", len(called))),
        )
    flight, result = samples[len(samples) // 2]
    found = await journey.find_flight(client.admin, flight, result)
    ranges = await journey.queue_ranges(client.admin)
    with Bars(console) as bars:
        await lives.catch_up(client, bars.add("read model", count), count)
    known = await lives.look_up(client, flight, result.message_id, sales.asked_about())

    report.show_carriers(console, ledger)
    report.show_queues(console, ranges)
    report.show_shift(console, shift)
    report.show_sales(console, sales)
    report.show_calls(console, calls)
    report.show_found(console, found)
    report.show_lives(console, known)
    report.show_speed(console, sent, pulled, live, ledger)
    stored = sum(offsets.max_offset - offsets.min_offset for offsets in ranges.values())
    faults = [
        *([] if sent.messages == count else [f"{count} in the file, {sent.messages} stored"]),
        *([] if stored == count else [f"{count} sent, the queues hold {stored}"]),
        *ledger.faults(),
        *shift.faults(ledger),
        *sales.faults(len(sold)),
        *calls.faults(),
        *found.faults(min(ledger.flights_by_number[flight.number], KEY_QUERY_COUNT_MAX)),
        *known.faults(ledger.flights_by_number[flight.number]),
        *([] if live.messages == live_count else [f"one by one: {live.messages} of {live_count}"]),
    ]
    return faults, sights.pages(result.message_id, sales.asked_about())


async def _survive(
    console: Console, client: eruca.AsyncClient, cluster: LocalCluster, path: Path
) -> list[str]:
    """Send flights while brokers are killed and restarted; return what went wrong."""
    events = failover.event_count(len(cluster.plan.broker_names))
    with Bars(console) as bars:
        survival = await failover.survive(
            client, cluster, read_flights(path), bars.add("events", events)
        )
    report.show_survival(console, survival)
    return survival.faults()


async def _fill_lake(
    console: Console, query_url: str, path: Path, count: int, kept: Path | None
) -> list[str]:
    """Export the flights to Parquet by Spark and compare; return the discrepancies."""
    if not lake.is_spark_here():
        console.print('no lake: Spark is not installed; "make demo" installs it')
        return []
    in_file = lake.delays_in_file(path, limit=count)
    with tempfile.TemporaryDirectory(prefix="eruca-lake-") as temporary:
        with Bars(console) as bars:
            filled = await lake.build_lake(
                query_url,
                Path(temporary) if kept is None else kept / "lake",
                journey.TOPIC,
                bars.add("Spark export", count),
            )
        lake.show_lake(console, filled, in_file)
    return filled.faults(in_file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="demo.flights",
        description="Send the flights that left New York City in 2013 through a local cluster, "
        "pull them back, and compare every number with the file.",
    )
    parser.add_argument(
        "--limit", type=_count, metavar="N", help=f"only the first N of the {FLIGHT_COUNT} flights"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the cluster running until Ctrl-C, and its data after that; print where both are",
    )
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return count


if __name__ == "__main__":
    sys.exit(main())
