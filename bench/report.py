"""The figures as they are measured, and the table of ratios at the end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.goals import GOALS


@dataclass(slots=True)
class Report:
    """The figures of a run."""

    console: Console = field(default_factory=Console)
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)

    def figure(self, name: str, text: str) -> None:
        """Record a plain figure, with its unit."""
        self.figures[name] = text
        self.console.print(f"  {name}: [bold]{text}[/bold]")

    def ratio(self, key: str, value: float) -> None:
        """Record a ratio that has a goal."""
        self.ratios[key] = value
        self.console.print(f"  [cyan]{GOALS[key].what}[/cyan]: [bold]{value:.2f}[/bold]")

    def show(self) -> None:
        """Print the table of ratios."""
        table = Table(title="Ratios to the raw limit of the same run")
        for column in ("what", "measured", "goal", "prototype", ""):
            table.add_column(column, justify="left" if column == "what" else "right")
        for key, value in self.ratios.items():
            goal = GOALS[key]
            is_met = value <= goal.ask if goal.at_most else value >= goal.ask
            bound = f"{'≤' if goal.at_most else '≥'} {goal.ask:g}"
            mark = "[green]met[/green]" if is_met else "[red]missed[/red]"
            table.add_row(goal.what, f"{value:.2f}", bound, goal.prototype, mark)
        self.console.print(table)

    def save(self, path: Path) -> None:
        """Write all figures as JSON."""
        goals = {key: GOALS[key]._asdict() for key in self.ratios}
        content = {"ratios": self.ratios, "figures": self.figures, "goals": goals}
        path.write_text(json.dumps(content, indent=1) + "\n")
