"""The demo's report at the end: counts, places and times."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

import eruca
from demo.boarding import Calls
from demo.crew import Shift
from demo.failover import Survival
from demo.journey import BULK, Found, Timing
from demo.ledger import Ledger, percentile
from demo.lives import Lives
from demo.tickets import Sales
from eruca.contract.queries import Timeline
from eruca.contract.topics import QueueOffsets


def show_carriers(console: Console, ledger: Ledger) -> None:
    """Show the number of flights of each carrier in the file, and the number pulled back."""
    table = _table("Flights per carrier", "carrier", "in the file", "pulled back", "")
    for carrier, sent in ledger.sent_by_carrier.most_common():
        received = ledger.received_by_carrier[carrier]
        agrees = Text("equal", "green") if sent == received else Text("DIFFERS", "bold red")
        table.add_row(carrier, f"{sent:,}", f"{received:,}", agrees)
    table.add_section()
    table.add_row("all", f"{ledger.sent:,}", f"{ledger.received:,}", "")
    _show(console, table)
    console.print(
        f"{ledger.aircraft:,} aircraft, each checked to be in one queue with its flights in order"
    )


def show_queues(console: Console, ranges: Mapping[eruca.MessageQueue, QueueOffsets]) -> None:
    """Show the offsets of each queue."""
    table = _table("Queues", "broker", "queue", "min offset", "max offset", "messages")
    for queue, offsets in ranges.items():
        table.add_row(
            queue.broker_name,
            str(queue.queue_id),
            f"{offsets.min_offset:,}",
            f"{offsets.max_offset:,}",
            f"{offsets.max_offset - offsets.min_offset:,}",
        )
    _show(console, table)


def show_shift(console: Console, shift: Shift) -> None:
    """Show the work of each member of the group."""
    table = _table("A group of two members, one of them killed", "member", "flights", "")
    table.add_row("the first", f"{shift.first_count:,}", "killed with SIGKILL")
    waited = shift.take_over_seconds
    took = "" if waited is None else f"had all queues {waited:.1f} s after that"
    table.add_row("the second", f"{shift.second_count:,}", took)
    table.add_section()
    table.add_row("both", f"{shift.repeated:,}", "unacknowledged at the kill, and repeated")
    table.add_row("together", f"{shift.by_carrier.total():,}", "each counted once")
    _show(console, table)


def show_sales(console: Console, sales: Sales) -> None:
    """Show the outcomes of transactions."""
    table = _table("Tickets, each sold in a transaction", "the clerk", "sales", "delivered")
    rows: tuple[tuple[str, eruca.Verdict], ...] = (
        ("committed", "commit"),
        ("rolled back", "rollback"),
        ("unknown, the checker asked", "unknown"),
    )
    for name, verdict in rows:
        table.add_row(name, f"{sales.count(verdict):,}", f"{sales.delivered_of(verdict):,}")
    table.add_section()
    table.add_row("all", f"{len(sales.said):,}", f"{sales.delivered.total():,}")
    _show(console, table)
    agrees = "as many" if sales.delivered.total() == len(sales.sold) else "NOT as many"
    console.print(f"{len(sales.sold):,} are in the book: {agrees}; {sales.seconds:.1f} s")


def show_calls(console: Console, calls: Calls) -> None:
    """Show the outcomes of delayed messages, and their lateness."""
    table = _table("Delivered later, each at its moment", "boarding calls", "messages")
    table.add_row("sent", f"{len(calls.due):,}")
    table.add_row("recalled", f"{len(calls.recalled):,}")
    table.add_row("delivered", f"{calls.delivered.total():,}")
    _show(console, table)
    if calls.lateness_ms:
        ordered = sorted(calls.lateness_ms)
        console.print(
            f"none early; lateness: p50 {percentile(ordered, 50):.0f} ms, "
            f"p99 {percentile(ordered, 99):.0f} ms, worst {ordered[-1]:.0f} ms"
        )


def show_survival(console: Console, survival: Survival) -> None:
    """Show how long sends waited while brokers were killed and restarted."""
    table = _table(
        "A second copy: brokers are killed and restarted while flights are sent",
        "meanwhile",
        "sends",
        "failed",
        "longest wait, s",
        "epoch",
    )
    for episode in survival.episodes:
        table.add_row(
            episode.event,
            f"{episode.sends:,}",
            f"{len(episode.failed):,}",
            f"{episode.longest_seconds:.2f}",
            episode.epochs,
        )
    _show(console, table)
    console.print(
        f"{len(survival.acknowledged):,} flights were acknowledged: {len(survival.lost):,} of them"
        f" are lost; {survival.repeated:,} messages came twice"
    )


def show_found(console: Console, found: Found) -> None:
    """Show the results of looking up one flight."""
    table = _table(f"One flight: {found.flight.number} of {found.flight.date}", "by", "", "found")
    table.add_row("offset id", found.result.offset_message_id, _bodies([found.by_offset_id]))
    table.add_row("unique id", found.result.message_id, _bodies(found.by_unique_id))
    table.add_row("key", found.flight.number, _bodies(found.by_key))
    _show(console, table)


def show_lives(console: Console, lives: Lives) -> None:
    """Show the query service's view of a flight and of a ticket."""
    _show_life(console, f"The life of flight {lives.flight.number}", lives.flight_life)
    console.print(f"{lives.same_number:,} found by that number")
    if lives.ticket_life is not None:
        _show_life(console, "The life of a ticket that the checker asked about", lives.ticket_life)


def _show_life(console: Console, title: str, life: Timeline) -> None:
    table = _table(title, "at", "", "found")
    table.columns[2].header = "detail"
    for event in life.events:
        told = ", ".join(
            f"{name} {value}" for name, value in event.detail.items() if value is not None
        )
        where = "" if event.topic is None else f"{event.topic}/{event.queue_id} on "
        table.add_row(
            f"{event.at:%H:%M:%S.%f}"[:-3], event.kind, told or f"{where}{event.broker_name}"
        )
    for group in life.groups:
        since = "" if group.since is None else f"{group.since:%H:%M:%S.%f}"[:-3]
        table.add_row(since, group.state, f"group {group.group}")
    _show(console, table)


def show_speed(
    console: Console, sent: Timing, pulled: Timing, live: Timing, ledger: Ledger
) -> None:
    """Show throughput of the bulk and latency of single messages."""
    table = _table("Throughput", "", "messages", "seconds", "messages/s", "MB/s of bodies")
    for name, timing, size in (
        ("send, acknowledged", sent, ledger.sent_bytes),
        ("pull, checked", pulled, ledger.received_bytes),
    ):
        rate = timing.messages / timing.seconds if timing.seconds else 0.0
        speed = size / timing.seconds / 1e6 if timing.seconds else 0.0
        table.add_row(
            name, f"{timing.messages:,}", f"{timing.seconds:.1f}", f"{rate:,.0f}", f"{speed:.1f}"
        )
    _show(console, table)
    table = _table("Latency", "milliseconds", "times", "p50", "p99", "worst")
    for name, values in (
        ("one send, cluster at rest", live.latencies_ms),
        ("from send to the consumer", live.transit_ms),
        (f"send_many of {BULK:,}, under load", sent.latencies_ms),
    ):
        if values:
            ordered = sorted(values)
            cells = (percentile(ordered, 50), percentile(ordered, 99), ordered[-1])
            table.add_row(name, f"{len(values):,}", *(f"{cell:,.1f}" for cell in cells))
    _show(console, table)


def show_sights(console: Console, url: str, pages: Mapping[str, str], *, is_running: bool) -> None:
    """Show the console's *url* and its *pages*; or, if it stops now, how to have them."""
    if not is_running:
        console.print(
            "To look at all this in the console, keep the cluster running: make demo ARGS=--keep",
            highlight=False,
        )
        return
    console.print(f"Look at it in the console, {url}")
    for what, path in pages.items():
        console.print(f"  {url}{path}  {what}", soft_wrap=True)


def show_verdict(console: Console, faults: list[str], seconds: float) -> None:
    """Show whether everything agrees."""
    console.print()
    if not faults:
        console.print(
            Text(f"All numbers agree with the file ({seconds:.0f} s in all).", "bold green")
        )
        return
    console.print(Text("The numbers do not agree with the file:", "bold red"))
    for fault in faults:
        console.print(Text(f"  - {fault}", "red"))


def _bodies(bodies: list[str]) -> str:
    if not bodies:
        return "nothing"
    more = f" and {len(bodies) - 1} more" if len(bodies) > 1 else ""
    return f"{bodies[0][:60]}…{more}"


def _show(console: Console, table: Table) -> None:
    console.print()
    console.print(table)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        is_count = number > 0 and heading not in ("", "found")
        table.add_column(heading, justify="right" if is_count else "left")
    return table
