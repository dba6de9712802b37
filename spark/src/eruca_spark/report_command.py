"""The part that all commands for reports have: their files, their page, and their run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import typer
from pyspark.sql import DataFrame, SparkSession

from eruca_spark.messages import MessageSource
from eruca_spark.progress import shown_tasks
from eruca_spark.reports.page import Origin
from eruca_spark.reports.report import FinishedReport, PageRequest, Report, finish
from eruca_spark.reports.shown_command import shown_command
from eruca_spark.reports.targets import TargetError, Targets, targets_of
from eruca_spark.reports.words import Language
from eruca_spark.shell import command_session, output_console


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

    def finished(self, make: Callable[[SparkSession], tuple[Report, DataFrame]]) -> FinishedReport:
        """Run the report; *make* returns it and all messages that it is about."""
        targets = self._targets()
        console = output_console()
        with (
            command_session(self.name, self.master, self.conf) as spark,
            self.source.held(spark),
            shown_tasks(spark, console, f"reporting: {self.name}"),
        ):
            report, messages = make(spark)
            lacks = self.source.lacks(spark, self.topics)
            request = PageRequest(messages, self.topics, lacks, self._origin())
            return finish(spark, report, targets, console, request, language=self.language)

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
