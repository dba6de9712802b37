"""The command line of a service, which is the same for all of them.

Without arguments the service runs until a signal, by the settings in its environment. ``--config``
adds those of a file. ``--help`` and ``--version`` read no setting.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from eruca_chassis.app import ServiceApp
from eruca_chassis.known_settings import KnownSetting, known_settings
from eruca_chassis.serving import run
from eruca_chassis.settings import ServiceSettings, SettingsError
from eruca_chassis.settings_file import set_from_file

SETTINGS_EXIT_CODE: Final = 2  # the exit code of a process whose settings are invalid
_ARGUMENTS: Final = "--help, --version, --config FILE"
_MEANING_WIDTH_MIN: Final = 40  # characters; if there is no room for them, meanings have own lines
_WIDTH: Final = 120  # characters of a line that no terminal limits

_Settings = TypeVar("_Settings", bound=ServiceSettings)


def run_program(
    kind: type[_Settings],
    create_app: Callable[[_Settings], ServiceApp],
    *,
    name: Callable[[_Settings], str],
    arguments: Sequence[str] | None = None,
) -> NoReturn:
    """Do what the command line requests, and end the process.

    Args:
        kind: The service's settings.
        create_app: Makes the service.
        name: Makes its name in logs and errors.
        arguments: Of the command line; None: this process's.
    """
    options = _options(kind, sys.argv[1:] if arguments is None else arguments)
    if options.help:
        sys.stdout.write(help_text(kind, shutil.get_terminal_size((_WIDTH, 24)).columns))
        raise SystemExit(0)
    if options.version:
        sys.stdout.write(f"{_distribution(kind)} {version(_distribution(kind))}\n")
        raise SystemExit(0)
    try:
        sources = set_from_file(options.config, kind, os.environ) if options.config else {}
        settings = kind.load(sources)
    except SettingsError as error:
        _refuse(error.faults)
    run(lambda: create_app(settings), settings, name=name(settings))


class _Parser(ArgumentParser):
    """argparse, with errors as all others of a service: the fault, then the fix."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        _refuse([f"{message}; valid arguments: {_ARGUMENTS}"])


def _options(kind: type[ServiceSettings], arguments: Sequence[str]) -> Namespace:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--config", type=Path)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(
            [
                f"{argument}: unknown argument; valid arguments: {_ARGUMENTS}; settings are "
                f"environment variables, such as {kind.prefix()}PORT"
                for argument in unknown
            ]
        )
    return options


def _refuse(faults: Sequence[str]) -> NoReturn:
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    raise SystemExit(SETTINGS_EXIT_CODE)


def _distribution(kind: type[ServiceSettings]) -> str:
    """Return the name of the distribution that *kind* comes from, and of its command."""
    return kind.__module__.partition(".")[0].replace("_", "-")  # it has the package's name


def help_text(kind: type[ServiceSettings], width: int) -> str:
    """Return the usage and the table of all settings, in lines of at most *width* characters.

    Only a variable or a default that is longer than that makes a longer line.
    """
    command = _distribution(kind)
    known = known_settings(kind)
    key = next(setting.key for setting in known.own)
    lines = [
        f"Usage: {command} [--config FILE]",
        f"       {command} --help | --version",
        "",
        f"{metadata(command)['Summary']}.",
        "",
        "  --config FILE  read settings from a TOML file, too; the environment wins",
        "  --help, -h     show this text",
        "  --version      show the version",
        "",
        *_wrapped(
            f"Settings are environment variables. In a file, {kind.prefix()}{key.upper()} is "
            f"{key}, an array may stand for a text with semicolons, and settings that are shared "
            "with other programs are in the table [shared], without ERUCA_.",
            width,
        ),
    ]
    for title, settings in (
        ("This service", known.own),
        ("Every service", known.common),
        ("Shared with other programs", known.shared),
    ):
        lines += ["", f"{title}:", ""]
        lines += _table(settings, width)
    return "\n".join(lines) + "\n"


def _table(settings: Sequence[KnownSetting], width: int) -> list[str]:
    """Return a line for each setting: variable, default and meaning, as columns if they fit."""
    first = max(len(setting.variable) for setting in settings)
    second = max(len(setting.default) for setting in settings)
    left = width - first - second - 6
    lines: list[str] = []
    for variable, _, default, meaning in settings:
        if left < _MEANING_WIDTH_MIN:
            lines.append(f"  {variable}  [{default}]")
            lines += [" " * 6 + line for line in _wrapped(meaning, width - 6)]
            continue
        begun, *rest = _wrapped(meaning, left)
        lines.append(f"  {variable:{first}}  {default:{second}}  {begun}")
        lines += [" " * (first + second + 6) + line for line in rest]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
