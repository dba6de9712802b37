"""Options that several commands of ``eruca-spark`` have, and their meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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


def source_of(
    lake: str | None, url: str | None, option: list[str] | None, topics: list[str]
) -> MessageSource:
    """Return the source of messages that the options describe, checked."""
    source = MessageSource(lake, source_options(url, option))
    source.check(topics)
    return source


def source_options(url: str | None, option: list[str] | None) -> dict[str, str]:
    """Return the options of the data source."""
    return {**({"url": url} if url else {}), **pairs_of(option, "--option")}


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
