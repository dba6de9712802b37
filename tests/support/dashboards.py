"""The dashboards that are shipped, and the expressions of their panels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.promql import OF_EVERY_TARGET, labels_of, metrics_of

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "grafana"
DOCUMENTS: Final[dict[str, Any]] = {
    path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}


@dataclass(frozen=True, slots=True)
class Shown:
    """An expression of a dashboard: a panel's, or that of a variable."""

    place: str
    expression: str  # with a range that is not Grafana's
    legend: str

    @property
    def metrics(self) -> set[str]:
        """The metrics of Eruca's that it looks at."""
        return metrics_of(self.expression)

    @property
    def labels(self) -> set[str]:
        """The labels that must be those of its metrics."""
        return labels_of(self.expression) | self.legend_labels

    @property
    def legend_labels(self) -> set[str]:
        """The labels that its series are named by."""
        return set(re.findall(r"{{(\w+)}}", self.legend)) - OF_EVERY_TARGET


def _shown() -> Iterator[Shown]:
    for name, document in DOCUMENTS.items():
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                [(metric, label)] = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"])
                yield Shown(f"{name}, ${label}", f"max by ({label}) ({metric})", "")
        for panel in document["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "5m")
                yield Shown(f"{name}, {panel['title']}", expression, target["legendFormat"])


SHOWN: Final = list(_shown())
