"""The alerting rules that are shipped, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.promql import OF_EVERY_TARGET, labels_of, metrics_of

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
TEXT: Final = (FOLDER / "eruca-alerts.yml").read_text()
RECORDED: Final = re.findall(
    r"- record: (\S+)\n +expr: (.*)$", (FOLDER / "eruca-recording.yml").read_text(), re.MULTILINE
)
"""The names of the recording rules, and their expressions."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert."""

    name: str
    expression: str
    text: str  # all of it

    @property
    def metrics(self) -> set[str]:
        """The metrics of Eruca's that it looks at."""
        return metrics_of(self.expression)

    @property
    def labels(self) -> set[str]:
        """The labels that must be those of its metrics."""
        shown = set(re.findall(r"\$labels\.(\w+)", self.text))
        return labels_of(self.expression) | shown - OF_EVERY_TARGET


def _rules() -> list[Rule]:
    rules: list[Rule] = []
    for text in TEXT.split("- alert: ")[1:]:
        [expression] = re.findall(r"^ +expr: (?:>-)?(.*?)^ +(?:for|labels): ", text, re.M | re.S)
        rules.append(Rule(text.partition("\n")[0], " ".join(expression.split()), text))
    return rules


RULES: Final = _rules()
