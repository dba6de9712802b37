"""Show measurements as a table for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.peers.catalogue import PEERS, ROWS
from bench.peers.rounds import Cell


def show(console: Console, measured: Mapping[str, list[Cell]], missing: Mapping[str, str]) -> None:
    """Print one line for each workload of each peer, and why a peer is missing."""
    table = Table(
        title="Messages a second of Eruca and of a peer, CPU seconds a million messages",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("workload", no_wrap=True)
    for column in ("Eruca", "peer", "ratio", "CPU", "CPU peer"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, cells in measured.items():
        table.add_row(f"[bold]{name}[/bold]")
        for number, cell in enumerate(cells):
            colour = "green" if cell.ratio >= 1 else "red"
            table.add_row(
                _row(cell),
                f"{cell.eruca.rate:,.0f}",
                f"{cell.peer.rate:,.0f}",
                f"[{colour}]{cell.ratio:.2f}[/{colour}]",
                f"{cell.eruca.cost:,.1f}",
                f"{cell.peer.cost:,.1f}",
                end_section=number == len(cells) - 1,
            )
    console.print(table)
    lost = [
        f"{name}, {_row(cell)}: {cell.ratio:.2f}"
        for name, cells in measured.items()
        for cell in cells
        if cell.ratio < 1
    ]
    count = sum(map(len, measured.values()))
    console.print(f"Eruca is behind in {len(lost)} of {count} rows.")
    for line in lost:
        console.print(f"  {line}")
    for name, reason in missing.items():
        console.print(
            f"[yellow]not measured:[/yellow] {PEERS[name].what}: {reason}", soft_wrap=True
        )


def save_markdown(path: Path, measured: Mapping[str, list[Cell]]) -> None:
    """Write ratios of rates, and of CPU time in brackets, by peer; lost rows are in italics."""
    lines = [
        " | ".join(["| Eruca / peer", *measured]) + " |",
        "|---" * (len(measured) + 1) + "|",
    ]
    rows = {(cell.row, cell.mode): _row(cell) for its in measured.values() for cell in its}
    for key, title in rows.items():
        texts = []
        for cells in measured.values():
            found = [cell for cell in cells if (cell.row, cell.mode) == key]
            texts.append(_ratio(found[0]) if found else "-")
        lines.append(" | ".join([f"| {title}", *texts]) + " |")
    path.write_text("\n".join(lines) + "\n")


def save_json(path: Path, measured: Mapping[str, list[Cell]], missing: Mapping[str, str]) -> None:
    """Write all figures as JSON."""
    content = {
        "measured": {
            name: [
                {
                    "row": cell.row,
                    "mode": cell.mode,
                    "ratio": cell.ratio,
                    "eruca": asdict(cell.eruca),
                    "peer": asdict(cell.peer),
                }
                for cell in cells
            ]
            for name, cells in measured.items()
        },
        "missing": dict(missing),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def _row(cell: Cell) -> str:
    return ROWS[cell.row] + (", fsync" if cell.mode == "fsync" else "")


def _ratio(cell: Cell) -> str:
    # The system counts CPU time in hundredths of a second: a short row may have taken none.
    cost = f"{cell.eruca.cost / cell.peer.cost:.2f}" if cell.peer.cost else "?"
    text = f"{cell.ratio:.2f} ({cost})"
    return text if cell.ratio >= 1 else f"*{text}*"
