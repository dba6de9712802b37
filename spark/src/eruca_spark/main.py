"""The command line ``eruca-spark``.

It also runs under ``spark-submit``: ``spark-submit $(python -m eruca_spark --where) export …``.

Exit codes: see :mod:`eruca_spark.outcomes`. Options are checked before Spark starts, as far as
possible.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from eruca.exporting.errors import OptionError, SourceError
from eruca.exporting.job_metrics import MetricTargets, measured
from eruca_spark.command_options import (
    Conf,
    Damaged,
    LakeOption,
    LanguageOption,
    Master,
    MetricsFile,
    Out,
    Output,
    PushGateway,
    SourceOptions,
    Topics,
    Url,
    source_of,
    topics_of,
)
from eruca_spark.compaction import latest_by_key, write_compacted
from eruca_spark.export_command import export
from eruca_spark.failures import name_of, reason_of
from eruca_spark.java import JavaError
from eruca_spark.lake import Lake, LakeError, Manifest, chain_faults
from eruca_spark.lake_files import LakeBusyError
from eruca_spark.maintain_command import maintain
from eruca_spark.messages import sound
from eruca_spark.outcomes import (
    FAULT,
    INTERRUPTED,
    WRONG_USAGE,
    code_of,
    line_of,
    outcome_of,
    told_errors,
)
from eruca_spark.progress import shown_tasks
from eruca_spark.replaying import SESSION_SETTINGS as REPLAY_SETTINGS
from eruca_spark.replaying import replay
from eruca_spark.report_command import ReportRun, Verdict
from eruca_spark.reports.audit import MESSAGE_COLUMNS as AUDIT_COLUMNS
from eruca_spark.reports.audit import audit_report, without_stranded
from eruca_spark.reports.audit_findings import is_sound
from eruca_spark.reports.basis import BASIS_COLUMNS
from eruca_spark.reports.dead_letters import MESSAGE_COLUMNS as DEAD_LETTER_COLUMNS
from eruca_spark.reports.dead_letters import PREFIX, dead_letters_report
from eruca_spark.reports.hot_keys import MESSAGE_COLUMNS as HOT_KEYS_COLUMNS
from eruca_spark.reports.hot_keys import TOP_DEFAULT, hot_keys_report
from eruca_spark.reports.latency import EVENT_COLUMNS as LATENCY_EVENT_COLUMNS
from eruca_spark.reports.latency import MESSAGE_COLUMNS as LATENCY_COLUMNS
from eruca_spark.reports.latency import latency_report
from eruca_spark.reports.report import FinishedReport, Report
from eruca_spark.reports.transactions import EVENT_COLUMNS as TRANSACTION_COLUMNS
from eruca_spark.reports.transactions import transactions_report
from eruca_spark.shell import (
    command_session,
    counted,
    error_console,
    progress_console,
)
from pyspark_eruca.replay_options import ReplayOptions

EVENTS_TOPIC: Final = "ERUCA_SYS_EVENTS"

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def run() -> None:
    """Run the command line, and exit."""
    try:
        app(standalone_mode=True)
    except OptionError as error:
        error_console().print(f"error: {error}")
        sys.exit(WRONG_USAGE)
    except (
        JavaError,
        LakeBusyError,
        LakeError,
        Py4JError,
        PySparkException,
        SourceError,
    ) as error:
        error_console().print(f"error: {reason_of(error)}")
        sys.exit(code_of(name_of(error)))
    except OSError as error:  # the disk for a report's files or for the output is full
        error_console().print(f"error: {error}")
        sys.exit(FAULT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@app.callback(invoke_without_command=True)
def _where(
    context: typer.Context,
    where: Annotated[
        bool, typer.Option("--where", help="print the path of the script for spark-submit")
    ] = False,
    shows_version: Annotated[
        bool, typer.Option("--version", help="show the version and exit")
    ] = False,
) -> None:
    """Exports, reports and replays of Eruca's topics, on Apache Spark."""
    if where:
        sys.stdout.write(f"{Path(__file__).with_name('__main__.py')}\n")
        raise typer.Exit
    if shows_version:
        sys.stdout.write(f"eruca-spark {version('eruca-spark')}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.BadParameter("a command is required; see --help")


app.command("export")(export)
app.command("maintain")(maintain)


@app.command()
def latency(
    *,
    out: Out = Path("reports"),
    language: LanguageOption = "en",
    lake: LakeOption = None,
    url: Url = None,
    topic: Topics = None,
    groups: Annotated[
        bool, typer.Option(help=f"also until consumer groups have read them, from {EVENTS_TOPIC}")
    ] = False,
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report delivery latency by topic and minute, and by consumer group."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)

    def report(spark: SparkSession) -> tuple[Report, DataFrame]:
        rows = _user_messages(source.messages(spark, topics, _with_basis(LATENCY_COLUMNS)))
        events = (
            source.sound_messages(spark, [EVENTS_TOPIC], LATENCY_EVENT_COLUMNS) if groups else None
        )
        return latency_report(sound(rows), events), rows

    places = MetricTargets(metrics_file, push_gateway)
    run = ReportRun("latency", out, language, source, topics, master, conf, output, places)
    run.run(report)


@app.command("dead-letters")
def dead_letters(
    *,
    out: Out = Path("reports"),
    language: LanguageOption = "en",
    lake: LakeOption = None,
    url: Url = None,
    group: Annotated[
        list[str] | None, typer.Option(help="a consumer group; may be repeated")
    ] = None,
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report dead letters by group, topic of origin, and reason."""
    topics = [PREFIX + name for name in group or []]
    if not topics and lake is None:
        raise typer.BadParameter("give groups with --group, or a lake with --lake")
    source = source_of(lake, url, option, topics)

    def report(spark: SparkSession) -> tuple[Report, DataFrame]:
        rows = source.messages(spark, topics, _with_basis(DEAD_LETTER_COLUMNS))
        letters = rows.where(rows["topic"].startswith(PREFIX))
        return dead_letters_report(sound(letters)), letters

    places = MetricTargets(metrics_file, push_gateway)
    run = ReportRun("dead-letters", out, language, source, topics, master, conf, output, places)
    run.run(report)


@app.command("hot-keys")
def hot_keys(
    *,
    out: Out = Path("reports"),
    language: LanguageOption = "en",
    lake: LakeOption = None,
    url: Url = None,
    topic: Topics = None,
    top: Annotated[int, typer.Option(min=1, help="number of keys per topic")] = TOP_DEFAULT,
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report the keys and queues that have far more messages than others."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)

    def report(spark: SparkSession) -> tuple[Report, DataFrame]:
        rows = _user_messages(source.messages(spark, topics, _with_basis(HOT_KEYS_COLUMNS)))
        return hot_keys_report(sound(rows), top), rows

    places = MetricTargets(metrics_file, push_gateway)
    run = ReportRun("hot-keys", out, language, source, topics, master, conf, output, places)
    run.run(report)


@app.command()
def transactions(
    *,
    out: Out = Path("reports"),
    language: LanguageOption = "en",
    lake: LakeOption = None,
    url: Url = None,
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report the outcomes of transactions, their durations, and the open ones."""
    topics = [EVENTS_TOPIC]
    source = source_of(lake, url, option, topics)

    def report(spark: SparkSession) -> tuple[Report, DataFrame]:
        events = source.messages(spark, topics, _with_basis(TRANSACTION_COLUMNS))
        return transactions_report(sound(events)), events

    places = MetricTargets(metrics_file, push_gateway)
    run = ReportRun("transactions", out, language, source, topics, master, conf, output, places)
    run.run(report)


@app.command()
def audit(
    *,
    out: Out = Path("reports"),
    language: LanguageOption = "en",
    lake: LakeOption = None,
    url: Url = None,
    topic: Topics = None,
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Check every queue for gaps, duplicates and damage; exit with 1 if there are any."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)
    faults: list[str] = []
    manifests: list[Manifest] = []

    def report(spark: SparkSession) -> tuple[Report, DataFrame]:
        if lake is not None:
            manifests.extend(Lake(spark, lake).manifests())
            faults.extend(chain_faults(manifests))
        rows = source.messages(spark, topics, _with_basis(AUDIT_COLUMNS))
        if any(manifest.dropped_rows for manifest in manifests):
            rows = without_stranded(rows)
        return audit_report(rows), rows

    def judge(done: FinishedReport) -> Verdict:
        members = {"queues_with_faults": len(_unsound(done)), "batch_faults": faults}
        return Verdict("fault" if _unsound(done) or faults else "done", members)

    places = MetricTargets(metrics_file, push_gateway)
    run = ReportRun("audit", out, language, source, topics, master, conf, output, places)
    unsound = _unsound(run.run(report, judge))
    for fault in faults:
        error_console().print(fault)
    if unsound or faults:
        queues, batches = counted(len(unsound), "queue"), counted(len(faults), "batch", "batches")
        error_console().print(f"faults found: {queues}, {batches}")
        raise typer.Exit(1)


@app.command()
def compaction(
    *,
    table: Annotated[
        str, typer.Argument(help="directory of the table; an existing table is replaced")
    ],
    lake: LakeOption = None,
    url: Url = None,
    topic: Topics = None,
    by: Annotated[
        Literal["key", "sharding-key"], typer.Option(help="use the first key, or the sharding key")
    ] = "key",
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write the latest message of each key as Parquet."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)
    places = MetricTargets(metrics_file, push_gateway)
    places.check()
    console = progress_console(output)
    with (
        told_errors("compaction", is_told=output == "json"),
        measured("compaction", table, places, outcome_of) as run,
        command_session("compaction", master, conf) as spark,
        source.held(spark),
    ):
        rows = _user_messages(source.sound_messages(spark, topics))
        latest = latest_by_key(rows, "key" if by == "key" else "sharding_key")
        with shown_tasks(spark, console, "compacting"):
            write_compacted(latest, table)
        count = spark.read.parquet(table).count()
        document = {"command": "compaction", "outcome": "done", "target": table, "keys": count}
        run.ended(document)
    if output == "json":
        sys.stdout.write(f"{line_of(document)}\n")
    else:
        console.print(f"{table} has the latest messages of {count:,} keys")


@app.command("replay")
def replay_command(
    *,
    to: Annotated[str, typer.Option(help="the topic to send to")],
    name: Annotated[
        str, typer.Option(help="name of the replay; a second run with the same name continues it")
    ],
    namesrv: Annotated[
        str,
        typer.Option(
            envvar="ERUCA_NAMESRV_URLS", help="name servers, which every executor must reach"
        ),
    ],
    url: Url = None,
    lake: LakeOption = None,
    topic: Topics = None,
    where: Annotated[
        str | None,
        typer.Option(help="select messages: a condition in Spark SQL, such as tag = 'UA'"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="a time, RFC 3339, not later than the replay's first run; older messages of"
            " the target topic are not searched"
        ),
    ] = None,
    ordered: Annotated[bool, typer.Option(help="keep the order within queues")] = True,
    force: Annotated[
        bool, typer.Option(help="allow the messages' own topic as the target")
    ] = False,
    damaged: Damaged = "refuse",
    output: Output = "text",
    metrics_file: MetricsFile = None,
    push_gateway: PushGateway = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Send messages of a lake or of topics to a topic, each once, even if it runs again."""
    topics = topics_of(topic, lake)
    of_topics = [] if lake is not None else [f"damaged={damaged}"]
    source = source_of(lake, url, [*(option or []), *of_topics], topics)
    if to in topics and not force:
        raise typer.BadParameter(
            f"--to {to}: the messages come from this topic; use --force to send them nevertheless"
        )
    options = {
        "namesrv": namesrv,
        "topic": to,
        "replay": name,
        "force": str(force).lower(),
        "damaged": damaged,
    }
    if url is not None:
        options["url"] = url
    if since is not None:
        options["replayFrom"] = since
    ReplayOptions.parse(options)
    places = MetricTargets(metrics_file, push_gateway)
    places.check()
    console = progress_console(output)
    with (
        told_errors("replay", is_told=output == "json"),
        # Two replays into one topic are two jobs.
        measured("replay", f"{to} {name}", places, outcome_of) as run,
        command_session("replay", master, conf, REPLAY_SETTINGS) as spark,
        source.held(spark),
    ):
        rows = source.messages(spark, topics)
        if where is not None:
            rows = rows.where(where)
        with shown_tasks(spark, console, "replaying"):
            done = replay(rows, options, is_ordered=ordered)
        outcome = "done" if done.sent else "nothing_new"
        document = {"command": "replay", "outcome": outcome, "target": to, **asdict(done)}
        run.ended(document)
    if output == "json":
        sys.stdout.write(f"{line_of(document)}\n")
        return
    sent = counted(done.sent, "message")
    console.print(f"{sent} sent to {to}, already there: {done.skipped:,}")
    if done.damaged:
        console.print(f"damaged, not sent: {counted(done.damaged, 'message')}")


def _unsound(done: FinishedReport) -> list[Row]:
    """Return the queues of an audit that have faults."""
    return [queue for queue in done.rows["queues"] if not is_sound(queue)]


def _user_messages(messages: DataFrame) -> DataFrame:
    """Omit control records, which have neither keys nor a producer."""
    return messages.where(messages["topic"] != EVENTS_TOPIC)


def _with_basis(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*columns, *BASIS_COLUMNS)))
