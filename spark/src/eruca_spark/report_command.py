"""The part that all commands for reports have: their files, their page, and their run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import typer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from eruca.exporting.job_metrics import MetricTargets, measured
from eruca_spark.messages import MessageSource
from eruca_spark.outcomes import Outcome, line_of, outcome_of, told_errors
from eruca_spark.progress import shown_tasks
from eruca_spark.reports.document import report_document
from eruca_spark.reports.page import Origin
from eruca_spark.reports.report import FinishedReport, PageRequest, Report, finish
from eruca_spark.reports.shown_command import shown_command
from eruca_spark.reports.targets import TargetError, Targets, targets_of
from eruca_spark.reports.words import Language
from eruca_spark.shell import command_session, output_console, progress_console


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a report that has run, and further members of its document."""

    outcome: Outcome = "done"
    members: Mapping[str, Any] = field(default_factory=dict)


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
    places: MetricTargets

    def run(
        self,
        make: Callable[[SparkSession], tuple[Report, DataFrame]],
        judge: Callable[[FinishedReport], Verdict] = lambda _: Verdict(),
    ) -> FinishedReport:
        """Run the report; print its document and publish its metrics, if that is wanted.

        Args:
            make: Returns the report, and all messages that it is about.
            judge: Returns the outcome of a report that has run.
        """
        self.places.check()
        targets = self._targets()
        source = self.source.text(self.topics)
        with (
            told_errors(self.name, is_told=self._is_told),
            measured(self.name, self._read(source), self.places, outcome_of) as run,
        ):
            done = self._finished(make, targets)
            verdict = judge(done)
            document: dict[str, Any] = {
                "command": self.name,
                "outcome": verdict.outcome,
                "source": source,
                "topics": [*self.topics],
                **verdict.members,
            }
            run.ended(document)
        if self._is_told:
            sys.stdout.write(f"{line_of({**document, **report_document(done)})}\n")
        return done

    def _read(self, source: str) -> str:
        """Return what the report reads, the label ``target`` of its metrics.

        Without the topics, a report of one topic would replace the metrics of another one's.
        """
        return " ".join(filter(None, (source, ",".join(sorted({*self.topics})))))

    @property
    def _is_told(self) -> bool:
        return self.output == "json"

    def _finished(
        self, make: Callable[[SparkSession], tuple[Report, DataFrame]], targets: Targets
    ) -> FinishedReport:
        with (
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
                Console(quiet=True) if self._is_told else output_console(),
                request,
                language=self.language,
                needs_basis=self._is_told,
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
