"""The part that all commands for reports have: their files, their page, and their run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import typer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from eruca_spark.messages import MessageSource
from eruca_spark.outcomes import Outcome, line_of, told_errors
from eruca_spark.progress import shown_tasks
from eruca_spark.reports.document import report_document
from eruca_spark.reports.page import Origin
from eruca_spark.reports.report import FinishedReport, PageRequest, Report, finish
from eruca_spark.reports.shown_command import shown_command
from eruca_spark.reports.targets import TargetError, Targets, targets_of
from eruca_spark.reports.words import Language
from eruca_spark.shell import command_session, output_console, progress_console


@dataclass(frozen=True, slots=True)
class ReportRun:
    """The options of a report that do not depend on its kind."""

    name: str
    out: Path
    language: Language
    source: MessageSource
    topics: Sequence[str]
    master: str | None
    conf: list[str] | None
    output: Literal["text", "json"]

    def run(self, make: Callable[[SparkSession], tuple[Report, DataFrame]]) -> None:
        """Run the report, and print it; *make* is as for :meth:`finished`."""
        self.tell(self.finished(make), "done")

    def tell(self, done: FinishedReport, outcome: Outcome, **more: Any) -> None:  # noqa: ANN401
        """Print the document of a report that has run, if that is wanted.

        Args:
            done: The report.
            outcome: That of the command.
            more: Further members of the document.
        """
        if self.output == "json":
            document = {
                "command": self.name,
                "outcome": outcome,
                "source": self.source.text(self.topics),
                "topics": [*self.topics],
                **more,
                **report_document(done),
            }
            sys.stdout.write(f"{line_of(document)}\n")

    def finished(self, make: Callable[[SparkSession], tuple[Report, DataFrame]]) -> FinishedReport:
        """Run the report; *make* returns it and all messages that it is about."""
        targets = self._targets()
        is_told = self.output == "json"
        with (
            told_errors(self.name, is_told=is_told),
            command_session(self.name, self.master, self.conf) as spark,
            self.source.held(spark),
            shown_tasks(spark, progress_console(self.output), f"reporting: {self.name}"),
        ):
            report, messages = make(spark)
            lacks = self.source.lacks(spark, self.topics)
            request = PageRequest(messages, self.topics, lacks, self._origin())
            return finish(
                spark,
                report,
                targets,
                Console(quiet=True) if is_told else output_console(),
                request,
                language=self.language,
                needs_basis=is_told,
            )

    def _targets(self) -> Targets:
        """Return the files to write; their directory exists.

        Otherwise Spark would fail with a stack trace, and only when the report is written.
        """
        try:
            targets = targets_of(self.out, self.name)
            targets.parent.mkdir(parents=True, exist_ok=True)
        except TargetError as error:
            raise typer.BadParameter(f"--out {error}") from error
        except OSError as error:
            raise typer.BadParameter(
                f"--out {self.out} cannot be created: {error.strerror}"
            ) from error
        return targets

    def _origin(self) -> Origin:
        return Origin(
            shown_command(sys.argv[1:]),
            self.source.text(self.topics),
            datetime.now(UTC),
            version("eruca-spark"),
        )
