"""The command line ``eruca-spark``.

It also runs under ``spark-submit``: ``spark-submit $(python -m eruca_spark --where) export …``.

Exit codes: 0 success, 1 failure or findings of an audit, 2 wrong usage, 130 stopped by Ctrl-C.
Options are checked before Spark starts, as far as possible.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal

import typer
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from eruca_spark.command_options import (
    Conf,
    Damaged,
    LakeOption,
    Master,
    Out,
    SourceOptions,
    Topics,
    Url,
    pairs_of,
    source_of,
    source_options,
    topics_of,
)
from eruca_spark.compaction import latest_by_key, write_compacted
from eruca_spark.export import run_export, waiting_rows
from eruca_spark.failures import reason_of
from eruca_spark.java import JavaError
from eruca_spark.lake import Lake, LakeError, chain_faults
from eruca_spark.lake_files import LakeBusyError
from eruca_spark.progress import RowsBar, shown_tasks
from eruca_spark.replaying import SESSION_SETTINGS as REPLAY_SETTINGS
from eruca_spark.replaying import replay
from eruca_spark.reports.audit import MESSAGE_COLUMNS as AUDIT_COLUMNS
from eruca_spark.reports.audit import audit_report, is_sound
from eruca_spark.reports.dead_letters import MESSAGE_COLUMNS as DEAD_LETTER_COLUMNS
from eruca_spark.reports.dead_letters import PREFIX, dead_letters_report
from eruca_spark.reports.hot_keys import MESSAGE_COLUMNS as HOT_KEYS_COLUMNS
from eruca_spark.reports.hot_keys import TOP_DEFAULT, hot_keys_report
from eruca_spark.reports.latency import EVENT_COLUMNS as LATENCY_EVENT_COLUMNS
from eruca_spark.reports.latency import MESSAGE_COLUMNS as LATENCY_COLUMNS
from eruca_spark.reports.latency import latency_report
from eruca_spark.reports.report import FinishedReport, Report, finish
from eruca_spark.reports.transactions import EVENT_COLUMNS as TRANSACTION_COLUMNS
from eruca_spark.reports.transactions import transactions_report
from eruca_spark.session import spark_session
from pyspark_eruca.errors import OptionError, SourceError
from pyspark_eruca.options import Options
from pyspark_eruca.replay_options import ReplayOptions

EVENTS_TOPIC: Final = "ERUCA_SYS_EVENTS"
MASTERS: Final = ("local", "spark://", "yarn", "k8s://")
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
FILE_WIDTH: Final = 160  # of tables that are written to a file or a pipe

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def run() -> None:
    """Run the command line, and exit."""
    try:
        app(standalone_mode=True)
    except OptionError as error:
        _errors().print(f"error: {error}")
        sys.exit(WRONG_USAGE)
    except (
        JavaError,
        LakeBusyError,
        LakeError,
        Py4JError,
        PySparkException,
        SourceError,
    ) as error:
        _errors().print(f"error: {reason_of(error)}")
        sys.exit(1)
    except OSError as error:  # the disk for a report's files or for the output is full
        _errors().print(f"error: {error}")
        sys.exit(1)
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


@app.command()
def export(
    *,
    lake: Annotated[str, typer.Argument(help="a directory, or a URI that all executors can reach")],
    topic: Annotated[list[str], typer.Option("--topic", help="a topic; may be repeated")],
    url: Url = None,
    rows_per_batch: Annotated[
        int, typer.Option(min=1, help="messages in one batch, which a crash repeats")
    ] = 2_000_000,
    allow_loss: Annotated[
        bool,
        typer.Option(
            help="continue if messages were deleted before they were exported, or if a broker"
            " with messages is unreachable"
        ),
    ] = False,
    damaged: Damaged = "refuse",
    every_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="seconds; export for ever, looking for new messages at this interval"
        ),
    ] = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Export new messages of topics to Parquet: each message once, even after a crash."""
    options = {
        **source_options(url, option),
        "topic": ",".join(topic),
        "maxRowsPerTrigger": str(rows_per_batch),
        "failOnDataLoss": "false" if allow_loss else "true",
        "damaged": damaged,
    }
    Options.parse(options)
    console = _console()
    with _session("export", master, conf) as spark, _interruption() as is_interrupted:
        total = waiting_rows(Lake(spark, lake), options)
        with RowsBar(console, total) as bar:
            done = run_export(
                spark,
                lake,
                options,
                every_seconds=every_seconds,
                watch=lambda done: bar.show(done.rows),
                is_over=is_interrupted,
            )
        manifests = Lake(spark, lake).manifests()
    for name, rows in sorted(done.rows_by_topic.items()):
        console.print(f"{name}: {_counted(rows, 'message')}")
    if done.missing_rows:
        lost = _counted(done.missing_rows, "message")
        console.print(f"deleted before they were read: {lost}")
    if done.damaged_rows:
        console.print(f"damaged, see column damage: {_counted(done.damaged_rows, 'message')}")
    held = sum(manifest.rows for manifest in manifests)
    batches = _counted(len(manifests), "batch", "batches")
    console.print(f"{lake} has {_counted(held, 'message')} in {batches}")
    if is_interrupted():
        raise typer.Exit(INTERRUPTED)


@app.command()
def latency(
    *,
    out: Out = Path("reports"),
    lake: LakeOption = None,
    url: Url = None,
    topic: Topics = None,
    groups: Annotated[
        bool, typer.Option(help=f"also until consumer groups have read them, from {EVENTS_TOPIC}")
    ] = False,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report delivery latency by topic and minute, and by consumer group."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)

    def report(spark: SparkSession) -> Report:
        rows = _user_messages(source.sound_messages(spark, topics, LATENCY_COLUMNS))
        events = (
            source.sound_messages(spark, [EVENTS_TOPIC], LATENCY_EVENT_COLUMNS) if groups else None
        )
        return latency_report(rows, events)

    _report("latency", out, master, conf, report)


@app.command("dead-letters")
def dead_letters(
    *,
    out: Out = Path("reports"),
    lake: LakeOption = None,
    url: Url = None,
    group: Annotated[
        list[str] | None, typer.Option(help="a consumer group; may be repeated")
    ] = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report dead letters by group, topic of origin, and reason."""
    topics = [PREFIX + name for name in group or []]
    if not topics and lake is None:
        raise typer.BadParameter("give groups with --group, or a lake with --lake")
    source = source_of(lake, url, option, topics)
    _report(
        "dead-letters",
        out,
        master,
        conf,
        lambda spark: dead_letters_report(
            source.sound_messages(spark, topics, DEAD_LETTER_COLUMNS)
        ),
    )


@app.command("hot-keys")
def hot_keys(
    *,
    out: Out = Path("reports"),
    lake: LakeOption = None,
    url: Url = None,
    topic: Topics = None,
    top: Annotated[int, typer.Option(min=1, help="number of keys per topic")] = TOP_DEFAULT,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report the keys and queues that have far more messages than others."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)

    def report(spark: SparkSession) -> Report:
        rows = source.sound_messages(spark, topics, HOT_KEYS_COLUMNS)
        return hot_keys_report(_user_messages(rows), top)

    _report("hot-keys", out, master, conf, report)


@app.command()
def transactions(
    *,
    out: Out = Path("reports"),
    lake: LakeOption = None,
    url: Url = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report the outcomes of transactions, their durations, and the open ones."""
    source = source_of(lake, url, option, [EVENTS_TOPIC])
    _report(
        "transactions",
        out,
        master,
        conf,
        lambda spark: transactions_report(
            source.sound_messages(spark, [EVENTS_TOPIC], TRANSACTION_COLUMNS)
        ),
    )


@app.command()
def audit(
    *,
    out: Out = Path("reports"),
    lake: LakeOption = None,
    url: Url = None,
    topic: Topics = None,
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Check every queue for gaps, duplicates and damage; exit with 1 if there are any."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)
    faults: list[str] = []

    def report(spark: SparkSession) -> Report:
        if lake is not None:
            faults.extend(chain_faults(Lake(spark, lake).manifests()))
        return audit_report(source.messages(spark, topics, AUDIT_COLUMNS))

    finished = _report("audit", out, master, conf, report)
    unsound = [queue for queue in finished.rows["queues"] if not is_sound(queue)]
    for fault in faults:
        _errors().print(fault)
    if unsound or faults:
        queues, batches = _counted(len(unsound), "queue"), _counted(len(faults), "batch", "batches")
        _errors().print(f"faults found: {queues}, {batches}")
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
    option: SourceOptions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write the latest message of each key as Parquet."""
    topics = topics_of(topic, lake)
    source = source_of(lake, url, option, topics)
    console = _console()
    with _session("compaction", master, conf) as spark:
        rows = _user_messages(source.sound_messages(spark, topics))
        latest = latest_by_key(rows, "key" if by == "key" else "sharding_key")
        with shown_tasks(spark, console, "compacting"):
            write_compacted(latest, table)
        count = spark.read.parquet(table).count()
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
    console = _console()
    with _session("replay", master, conf, REPLAY_SETTINGS) as spark:
        rows = source.messages(spark, topics)
        if where is not None:
            rows = rows.where(where)
        with shown_tasks(spark, console, "replaying"):
            done = replay(rows, options, is_ordered=ordered)
    sent = _counted(done.sent, "message")
    console.print(f"{sent} sent to {to}, already there: {done.skipped:,}")
    if done.damaged:
        console.print(f"damaged, not sent: {_counted(done.damaged, 'message')}")


def _report(
    name: str,
    out: Path,
    master: str | None,
    conf: list[str] | None,
    make: Callable[[SparkSession], Report],
) -> FinishedReport:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        # Otherwise Spark would fail with a stack trace, and only when the report is written.
        raise typer.BadParameter(f"--out {out} cannot be created: {error.strerror}") from error
    console = _console()
    with _session(name, master, conf) as spark, shown_tasks(spark, console, f"reporting: {name}"):
        return finish(spark, make(spark), out, console)


@contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Record the first Ctrl-C without interrupting Spark; yield a function that returns it.

    The second one ends the command at once.
    """
    interrupted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _session(
    name: str,
    master: str | None,
    conf: list[str] | None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    if master is not None and not master.startswith(MASTERS):
        # Otherwise Spark would fail with a stack trace.
        raise typer.BadParameter(
            "--master: expected a value that begins with one of"
            f" {', '.join(MASTERS)}; found {master}"
        )
    chosen = {**(settings or {}), **pairs_of(conf, "--conf")}
    with spark_session(f"eruca {name}", master, chosen) as spark:
        yield spark


def _user_messages(messages: DataFrame) -> DataFrame:
    """Omit control records, which have neither keys nor a producer."""
    return messages.where(messages["topic"] != EVENTS_TOPIC)


def _console() -> Console:
    # Names and paths must not be parsed as markup, and a row must stay on one line everywhere.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else FILE_WIDTH
    return Console(highlight=False, markup=False, soft_wrap=True, width=width)


def _counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _errors() -> Console:
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
