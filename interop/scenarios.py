"""The scenarios: one side writes a store, the other opens a copy, reads it and writes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from interop import data
from interop.bench import Bench, Opened
from interop.delayed import check_delayed, leave_delayed
from interop.driver import Driver
from interop.eruca_client import ErucaClient
from interop.filling import check_automatic_topic, fill, write_on
from interop.side import Contents
from interop.store_files import damage_last_record, delete_first_segment
from interop.undecided import decide

_MORE: Final = 400  # flights added by the other side

_Open = Callable[[Path], AbstractContextManager[Opened]]
_Named = tuple[str, _Open]


def rocketmq_writes(bench: Bench) -> None:
    """RocketMQ writes; Eruca opens a copy and writes on; RocketMQ opens that."""
    _run(bench, ("RocketMQ", bench.rocketmq), ("Eruca", bench.eruca))


def eruca_writes(bench: Bench) -> None:
    """Eruca writes; RocketMQ opens a copy and writes on; Eruca opens that."""
    _run(bench, ("Eruca", bench.eruca), ("RocketMQ", bench.rocketmq))


def delayed_messages(bench: Bench) -> None:
    """Let each side leave delayed messages; the other delivers them, and no finished ones."""
    _hand_over(bench, ("Eruca", bench.eruca), ("RocketMQ", bench.rocketmq))
    if not bench.variant.is_killed:  # RocketMQ repeats some by itself after a kill
        _hand_over(bench, ("RocketMQ", bench.rocketmq), ("Eruca", bench.eruca))


def _hand_over(bench: Bench, writer: _Named, reader: _Named) -> None:
    place = bench.directory / f"{writer[0].lower()}-delays"
    store = place / "written"
    title = bench.title(f"{writer[0]} delays messages")
    with bench.checks.section(title), writer[1](store) as opened:
        recalls_levels = isinstance(opened.side, ErucaClient)
        left = leave_delayed(bench.checks, opened.side, recalls_levels=recalls_levels)
        opened.settle_delays()
        bench.end(opened)
    if bench.variant.is_killed:
        copy = Path(shutil.copytree(store, place / "killed"))
        title = bench.title(f"{reader[0]} takes them over from one that was killed")
        with bench.checks.section(title), reader[1](copy) as opened:
            check_delayed(bench.checks, opened.side, left, are_soon_exact=False)
        title = bench.title(f"{writer[0]} is started again and stopped")
        with bench.checks.section(title), writer[1](store) as opened:
            opened.broker.stop()
    taken_over = Path(shutil.copytree(store, place / "taken-over"))
    title = bench.title(f"{reader[0]} takes them over")
    with bench.checks.section(title), reader[1](taken_over) as opened:
        check_delayed(bench.checks, opened.side, left)
        opened.broker.stop()
    taken_back = Path(shutil.copytree(taken_over, place / "taken-back"))
    title = bench.title(f"{writer[0]} takes them back")
    with bench.checks.section(title), writer[1](taken_back) as opened:
        check_delayed(bench.checks, opened.side, left, is_retry_due=False)


def _run(bench: Bench, writer: _Named, reader: _Named) -> None:
    place = bench.directory / f"{writer[0].lower()}-writes"
    contents = _write(bench, writer, place / "written")
    if bench.variant.name == "stopped":
        _open_after_retention(bench, reader, place, contents)
    written_on = Path(shutil.copytree(place / "written", place / "written-on"))
    if bench.variant.is_killed:
        contents = contents.before_log_offset(damage_last_record(written_on))
    contents = _write_on(bench, reader, written_on, contents)
    reopened = Path(shutil.copytree(written_on, place / "reopened"))
    title = bench.title(f"{writer[0]} opens that again")
    with bench.checks.section(title), writer[1](reopened) as opened:
        bench.check_contents(opened, contents)
        if isinstance(opened.side, Driver):
            check_automatic_topic(bench.checks, opened.side)


def _write(bench: Bench, writer: _Named, store: Path) -> Contents:
    with bench.checks.section(bench.title(f"{writer[0]} writes")):
        with writer[1](store) as opened:
            with_delay = not bench.variant.is_killed
            contents = fill(bench.checks, opened.side, bench.message_count, with_delay=with_delay)
            bench.end(opened)
        bench.check_files(store, contents)
    return contents


def _write_on(bench: Bench, reader: _Named, store: Path, contents: Contents) -> Contents:
    with bench.checks.section(bench.title(f"{reader[0]} opens a copy and writes on")):
        with reader[1](store) as opened:
            bench.check_contents(opened, contents)
            if isinstance(opened.side, ErucaClient):
                are_decided = not bench.variant.is_killed
                contents = decide(
                    bench.checks, opened.side, contents, are_others_decided=are_decided
                )
            more = data.flights(bench.message_count + _MORE)[bench.message_count :]
            contents = write_on(bench.checks, opened.side, contents, more)
            bench.end(opened)
        bench.check_files(store, contents)
    return contents


def _open_after_retention(bench: Bench, reader: _Named, place: Path, contents: Contents) -> None:
    """Delete a copy's first segment, as retention does, and open it."""
    with bench.checks.section(bench.title(f"{reader[0]} opens a copy without its first segment")):
        shortened = Path(shutil.copytree(place / "written", place / "shortened"))
        left = contents.from_log_offset(delete_first_segment(shortened))
        with reader[1](shortened) as opened:
            bench.check_contents(opened, left)
