"""The command line of a service, which is the same for all of them.

Without arguments the service runs until a signal, by the settings in its environment. ``--config``
adds those of a file. ``--check`` says whether it could start. ``--help`` and ``--version`` read no
setting.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import metadata, version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar

from eruca_chassis.app import ServiceApp
from eruca_chassis.running.known_settings import KnownSetting, known_settings
from eruca_chassis.running.serving import INTERRUPTED_EXIT_CODE, run
from eruca_chassis.running.settings import ServiceSettings, SettingsError
from eruca_chassis.running.settings_file import set_from_file

if TYPE_CHECKING:
    from eruca_chassis.running.checking import Finding

SETTINGS_EXIT_CODE: Final = 2  # the exit code of a process whose settings are invalid
_UNREAD_EXIT_CODE: Final = 1  # the exit code if the output is closed or full
_ARGUMENTS: Final = "--help, --version, --config FILE, --check"
_MEANING_WIDTH_MIN: Final = 40  # characters; if there is no room for them, meanings have own lines
_WIDTH: Final = 120  # characters of a line that no terminal limits

_Settings = TypeVar("_Settings", bound=ServiceSettings)


@dataclass(frozen=True, slots=True)
class Act(Generic[_Settings]):
    """An act of an operator that a flag of the command line requests, instead of serving.

    Attributes:
        flag: Such as ``--repair``.
        meaning: For the help.
        run: Does it; takes the values of the options that were given, and returns the exit code.
        options: Names of options that belong to it, such as ``--from``, each with the name and the
            meaning of its value.
    """

    flag: str
    meaning: str
    run: Callable[[_Settings, Mapping[str, str]], int]
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:  # before it served
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None


@_ended_by_ctrl_c()
def run_program(
    kind: type[_Settings],
    create_app: Callable[[_Settings], ServiceApp],
    *,
    name: Callable[[_Settings], str],
    inspect: Callable[[_Settings], Iterable[Finding]],
    acts: Sequence[Act[_Settings]] = (),
    arguments: Sequence[str] | None = None,
) -> NoReturn:
    """Do what the command line requests, and end the process.

    Args:
        kind: The service's settings.
        create_app: Makes the service.
        name: Makes its name in logs and errors.
        inspect: Looks at its own store for ``--check``, and writes nothing.
        acts: Acts of an operator.
        arguments: Of the command line; None: this process's.
    """
    options = _options(kind, acts, sys.argv[1:] if arguments is None else arguments)
    if options.help:
        _show(help_text(kind, shutil.get_terminal_size((_WIDTH, 24)).columns, acts))
        raise SystemExit(0)
    if options.version:
        _show(f"{kind.distribution()} {version(kind.distribution())}\n")
        raise SystemExit(0)
    try:
        sources = set_from_file(options.config, kind, os.environ) if options.config else {}
        settings = kind.load(sources)
    except SettingsError as error:
        _refuse(error.faults)
    if options.check:
        raise SystemExit(_check(settings, create_app, inspect, len(sources), options.config))
    for act in acts:
        if getattr(options, act.flag):
            given = {name: getattr(options, name) for name in act.options}
            values = {name: value for name, value in given.items() if value is not None}
            raise SystemExit(act.run(settings, values))
    run(lambda: create_app(settings), settings, name=name(settings))


def _check(
    settings: _Settings,
    create_app: Callable[[_Settings], ServiceApp],
    inspect: Callable[[_Settings], Iterable[Finding]],
    from_file: int,
    file: Path | None,
) -> int:
    """Print whether the service could start with these settings; return the exit code."""
    from eruca_chassis.running.checking import Finding, findings_of  # here: only --check needs it

    known = {setting.variable for setting in known_settings(type(settings)).all}
    set_here = len(known & os.environ.keys()) - from_file
    counts = [f"{set_here} from the environment", *([f"{from_file} from {file}"] if file else [])]
    valid = Finding("ok", "settings", f"{', '.join(counts)}; all others have their defaults")
    faults = 0
    for finding in (valid, *findings_of(settings, create_app, inspect)):
        _show(finding.line() + "\n")  # at once: a database may take seconds
        faults += finding.kind == "fault"
    _show("Not ready to start: see the faults above.\n" if faults else "Ready to start.\n")
    return SETTINGS_EXIT_CODE if faults else 0


def _show(text: str) -> None:
    """Write *text* for the user; end the process if nobody reads it any more."""
    if sys.stdout is None:  # the caller has closed it
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        # Python would fail again at its end, when it flushes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_UNREAD_EXIT_CODE) from None


class _Parser(ArgumentParser):
    """argparse, with errors as all others of a service: the fault, then the fix."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        _refuse([f"{message}; valid arguments: {_ARGUMENTS}"])


def _options(
    kind: type[ServiceSettings], acts: Sequence[Act[_Settings]], arguments: Sequence[str]
) -> Namespace:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--check", action="store_true")
    for act in acts:
        parser.add_argument(act.flag, action="store_true", dest=act.flag)
        for name in act.options:
            parser.add_argument(name, dest=name)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(
            [
                f"{argument}: unknown argument; valid arguments: {_arguments(acts)}; settings are "
                f"environment variables, such as {kind.prefix()}PORT"
                for argument, _, _ in (
                    one.partition("=") for one in unknown
                )  # a value may be secret
            ]
        )
    for act in acts:
        alone = [name for name in act.options if getattr(options, name) is not None]
        if alone and not getattr(options, act.flag):
            _refuse([f"{alone[0]} belongs to {act.flag}: give both"])
    return options


def _arguments(acts: Sequence[Act[_Settings]]) -> str:
    return ", ".join([_ARGUMENTS, *(_usage(act) for act in acts)])


def _usage(act: Act[_Settings]) -> str:
    return " ".join([act.flag, *(f"[{name} {value}]" for name, (value, _) in act.options.items())])


def _refuse(faults: Sequence[str]) -> NoReturn:
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    raise SystemExit(SETTINGS_EXIT_CODE)


def help_text(kind: type[ServiceSettings], width: int, acts: Sequence[Act[_Settings]] = ()) -> str:
    """Return the usage and the table of all settings, in lines of at most *width* characters.

    Only a variable or a default that is longer than that makes a longer line.
    """
    command = kind.distribution()
    known = known_settings(kind)
    key = next(setting.key for setting in known.own)
    lines = [
        f"Usage: {command} [--config FILE] [--check]",
        *(f"       {command} [--config FILE] {_usage(act)}" for act in acts),
        f"       {command} --help | --version",
        "",
        f"{metadata(command)['Summary']}.",
        "",
        "  --config FILE  read settings from a TOML file, too; the environment wins",
        "  --check        say whether it could start, and start nothing; exit code 0 or 2",
        *(line for act in acts for line in _help_of(act, width)),
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


def _help_of(act: Act[_Settings], width: int) -> list[str]:
    lines = [f"  {act.flag}", *(" " * 17 + line for line in _wrapped(act.meaning, width - 17))]
    for name, (value, meaning) in act.options.items():
        first = f"  {name} {value}"
        lines += [f"{first:15}", *(" " * 17 + line for line in _wrapped(meaning, width - 17))]
    return [line.rstrip() for line in lines]


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
