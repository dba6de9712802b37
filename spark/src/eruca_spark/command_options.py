"""Options that several commands of ``eruca-spark`` have, and their meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from eruca_spark.messages import MessageSource
from eruca_spark.reports.words import Language

Url = Annotated[
    str | None,
    typer.Option(
        envvar="ERUCA_QUERY_URLS",
        help="URL of the query service, which every executor must reach; several separated by"
        " semicolons",
    ),
]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="a topic; may be repeated")]
LakeOption = Annotated[str | None, typer.Option("--lake", help="read a lake instead of topics")]
Master = Annotated[
    str | None,
    typer.Option(help="Spark's master, such as spark://HOST:7077 or yarn; default: local"),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="a Spark setting, NAME=VALUE; may be repeated")
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option("--option", help="an option of the data source, NAME=VALUE; may be repeated"),
]
Damaged = Annotated[
    Literal["refuse", "mark"],
    typer.Option(
        help="for a damaged message: refuse ends with an error; mark continues (an export's row"
        " has the fault in the column damage, a replay does not send it)"
    ),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        help="write metrics of the run to this file, NAME.prom, for node_exporter's textfile"
        " collector; needs prometheus_client"
    ),
]
PushGateway = Annotated[
    str | None,
    typer.Option(metavar="URL", help="push metrics of the run to this Pushgateway"),
]
Output = Annotated[
    Literal["text", "json"], typer.Option(help="json: one document that says what was done")
]
Out = Annotated[
    Path,
    typer.Option(
        help="FILE.html for a page, FILE.png for a picture, or a directory for both and the tables"
    ),
]
LanguageOption = Annotated[
    Language, typer.Option("--language", help="of the page and of the picture")
]

_SECRET: Final = re.compile(
    r"secret|passw|passphrase|(?:token|credential|authorization|private[._-]key)$"
    r"|\.fixed\.token\.|\.account\.key\.",
    re.IGNORECASE,
)
# Their values only say where a secret is.
_LEADS_TO_SECRET: Final = re.compile(
    r"(?:file|path|dir|location|provider|class|enabled|BitLength)$"
    r"|^spark\.kubernetes\..*\.secret(?:s|KeyRef)\.",
    re.IGNORECASE,
)

_OF_TOPICS: Final = frozenset({"topic", "subscribe", "subscribepattern", "assign"})


def source_of(
    lake: str | None, url: str | None, option: list[str] | None, topics: list[str]
) -> MessageSource:
    """Return the source of messages that the options describe, checked."""
    source = MessageSource(lake, source_options(url, option))
    source.check(topics)
    return source


def source_options(url: str | None, option: list[str] | None) -> dict[str, str]:
    """Return the options of the data source; refuse those that choose topics."""
    given = pairs_of(option, "--option")
    for name in given:
        if name.lower() in _OF_TOPICS:
            raise typer.BadParameter(
                f"--option {name}: a command takes each topic by --topic; subscribePattern and"
                ' assign are for the data source only: spark.read.format("eruca")'
            )
    return {**({"url": url} if url else {}), **given}


def settings_of(conf: list[str] | None) -> dict[str, str]:
    """Return Spark's settings of ``--conf``; refuse secrets, which all users of a machine can read.

    A setting that is refused is named, and its value is not shown.
    """
    settings = pairs_of(conf, "--conf")
    for name in settings:
        if _SECRET.search(name) and not _LEADS_TO_SECRET.search(name):
            raise typer.BadParameter(
                f"--conf {name}: expected no secret in the command line, which every user of the"
                " machine can read; use spark-defaults.conf in the directory SPARK_CONF_DIR, or for"
                " S3 the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the"
                " driver and the executors"
            )
    return settings


def pairs_of(texts: list[str] | None, what: str) -> dict[str, str]:
    """Return the values by name of a repeated option *what*, each given as NAME=VALUE."""
    pairs = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"{what}: expected NAME=VALUE, found {text}")
        pairs[name] = value
    return pairs


def topics_of(topics: list[str] | None, lake: str | None) -> list[str]:
    """Return the topics; refuse a command that has neither topics nor a lake."""
    if not topics and lake is None:
        raise typer.BadParameter("give topics with --topic, or a lake with --lake")
    return topics or []
