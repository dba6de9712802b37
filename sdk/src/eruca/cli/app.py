"""``eruca``: the command line. A separate module has the commands of each subject.

typer imports these modules for their options. Each command imports its dependencies when it runs.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from eruca.cli.command import ApiKeyFileOption, CaFileOption, NamesrvOption, OutputOption
from eruca.cli.commands import (
    audit,
    auth,
    backup,
    broker,
    cluster,
    consuming,
    dead_letters,
    doctor,
    export,
    groups,
    life_lines,
    log,
    messages,
    query,
    reading,
    scheduled,
    send,
    topics,
    transactions,
)
from eruca.cli.session import Output, Session

app = typer.Typer(
    name="eruca",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Send, consume and find messages; manage topics and groups; diagnose problems.",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 sent except for skipped rows,"
    " 130 stopped by Ctrl-C, 143 by SIGTERM.",
)

for module in (
    topics,
    send,
    reading,
    consuming,
    messages,
    groups,
    dead_letters,
    transactions,
    scheduled,
    cluster,
    broker,
    log,
    query,
    life_lines,
    export,
    backup,
    auth,
    audit,
    doctor,
):
    module.register(app)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"eruca {version('eruca')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    namesrv: NamesrvOption = None,
    output: OutputOption = None,
    api_key_file: ApiKeyFileOption = None,
    ca_file: CaFileOption = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=lambda value: _show_version(wanted=value),
        ),
    ] = False,
) -> None:
    """Store the options that precede the command's name."""
    context.obj = Session(namesrv, output or Output.TABLE, api_key_file, ca_file)
