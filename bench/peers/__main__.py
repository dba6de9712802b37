"""``python -m bench.peers``: Eruca and other messaging systems under the same load.

Exit code 0: all that could be had was measured. 1: a system failed. 2: wrong usage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.children import nothing_left_behind
from bench.peers.catalogue import PEERS, ROWS
from bench.peers.client_process import ClientError
from bench.peers.rounds import Cell, Plan, cells_of, measure
from bench.peers.servers import Start
from bench.peers.table import save_json, save_markdown, show
from interop.processes import ChildError
from interop.toolchain import CannotRunError

SECONDS: Final = 1.0
ROUNDS: Final = 3
_BACKLOG: Final = 100_000  # messages; the fastest reader takes a third of a second
_QUICK_SECONDS: Final = 0.4
_QUICK_BACKLOG: Final = 10_000


def _known(kind: str, names: list[str], valid: list[str]) -> list[str]:
    for name in names:
        if name not in valid:
            raise typer.BadParameter(f"unknown {kind} {name!r}; valid: {', '.join(valid)}")
    return names or valid


def main(  # noqa: PLR0917 - typer's options are named on the command line
    peers: Annotated[
        list[str] | None, typer.Argument(help=f"default: all of {', '.join(PEERS)}")
    ] = None,
    rows: Annotated[
        str, typer.Option(help=f"workloads, separated by commas; default: all of {', '.join(ROWS)}")
    ] = "",
    seconds: Annotated[float, typer.Option(min=0.1, help="duration of each measurement")] = SECONDS,
    rounds: Annotated[int, typer.Option(min=1, help="measurements of each, in turns")] = ROUNDS,
    quick: Annotated[  # noqa: FBT002 - typer declares options as boolean parameters
        bool, typer.Option("--quick", help="one short round of each: shows that all of it works")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write the table of ratios here")] = None,
) -> None:
    """Measure Eruca and other messaging systems under the same load, in turns."""
    chosen = _known("peer", peers or [], list(PEERS))
    plan = Plan(
        tuple(_known("row", [row for row in rows.split(",") if row], list(ROWS))),
        _QUICK_SECONDS if quick else seconds,
        1 if quick else rounds,
        _QUICK_BACKLOG if quick else _BACKLOG,
        is_quick=quick,
    )
    console = Console()
    measured: dict[str, list[Cell]] = {}
    missing: dict[str, str] = {}
    failed = False
    try:
        with nothing_left_behind():
            starts = _provided(chosen, plan, missing)
            failed = _measure_all(console, starts, plan, measured, missing)
    finally:
        show(console, measured, missing)
        if json_file is not None:
            save_json(json_file, measured, missing)
        if markdown is not None:
            save_markdown(markdown, measured)
    raise typer.Exit(int(failed))


def _provided(chosen: list[str], plan: Plan, missing: dict[str, str]) -> dict[str, Start]:
    """Fetch the peers that can be had; note why the others cannot."""
    starts = {}
    for name in chosen:
        if not cells_of(PEERS[name], plan):
            missing[name] = "it has none of these rows"
            continue
        try:
            starts[name] = PEERS[name].provide()
        except CannotRunError as error:
            missing[name] = str(error)
    return starts


def _measure_all(
    console: Console,
    starts: dict[str, Start],
    plan: Plan,
    measured: dict[str, list[Cell]],
    missing: dict[str, str],
) -> bool:
    """Measure one peer after the other; return whether one has failed."""
    failed = False
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        total = sum(len(cells_of(PEERS[name], plan)) for name in starts)
        task = progress.add_task("starting", total=total)
        for name, start in starts.items():
            progress.update(task, description=f"{name}: starting")

            def step(row: str, name: str = name) -> None:
                progress.update(task, description=f"{name}: {ROWS[row]}")

            cells = measured[name] = []
            try:
                for cell in measure(name, PEERS[name], start, plan, step):
                    cells.append(cell)
                    progress.advance(task)
            except (ChildError, ClientError) as error:
                missing[name] = f"failed: {error}"
                failed = True
    return failed


if __name__ == "__main__":
    typer.run(main)
