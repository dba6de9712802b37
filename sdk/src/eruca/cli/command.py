"""Turn an async function into a command: shared options, one event loop, errors as one line.

Exit codes::

    0    success
    1    failure: stderr says what happened and how to fix it; or the doctor found faults
    2    the command line is wrong
    3    sent, except for bad rows that were skipped
    75   an export whose service, table or storage is away: run the same command again later
    130  stopped by Ctrl-C
    143  stopped by SIGTERM, in the same orderly way

A second Ctrl-C or SIGTERM ends the process at once, with the same code.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar, get_type_hints

import typer

from eruca.cli.completion import completed
from eruca.cli.session import Output, Session, leave_unread
from eruca.cli.stoppable import leave_at_once

if TYPE_CHECKING:
    from eruca.contract.errors import ErucaError

EXIT_FAILED: Final = 1
EXIT_ROWS_SKIPPED: Final = 3
EXIT_RETRY: Final = 75  # EX_TEMPFAIL of sysexits.h: run the same command again later
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143
_SIGNALS: Final = {
    int(signal.SIGINT): EXIT_INTERRUPTED,
    int(signal.SIGTERM): EXIT_TERMINATED,
}

NamesrvOption = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        metavar="URL",
        help="Name servers, separated by ';' [ERUCA_NAMESRV_URLS, else http://127.0.0.1:9876].",
    ),
]
OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", help="Output format: a table for people, or JSON for programs."),
]
# A key itself is no option: every user of a machine can read the arguments of its processes.
ApiKeyFileOption = Annotated[
    str | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help="File with the API key [ERUCA_API_KEY_FILE, else ERUCA_API_KEY].",
    ),
]
CaFileOption = Annotated[
    str | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Authorities to trust for https:// URLs [ERUCA_TLS_CA_FILE, else the system's].",
    ),
]

_Function = TypeVar("_Function", bound=Callable[..., Coroutine[Any, Any, int | None]])


def command(app: typer.Typer, name: str) -> Callable[[_Function], _Function]:
    """Register an async function as a command of *app*.

    Its first parameter is the :class:`Session`, the others are typer's. It returns the exit code,
    or None for 0. The shared options are valid before and after the command's name. The shell
    completes parameters named topic, group, broker or brokers.
    """

    def register(function: _Function) -> _Function:
        paragraphs = (inspect.getdoc(function) or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        app.command(name, help=text)(_runner(function))
        return function

    return register


def _runner(function: _Function) -> Callable[..., None]:
    def run(
        context: typer.Context,
        *,
        namesrv: str | None,
        output: Output | None,
        api_key_file: str | None,
        ca_file: str | None,
        **arguments: object,
    ) -> None:
        given: Session = context.obj or Session()
        # An empty value is refused: the command could change another cluster than intended.
        urls = given.namesrv_urls if namesrv is None else namesrv
        session = Session(
            urls,
            output or given.output,
            api_key_file or given.api_key_file,
            ca_file or given.ca_file,
        )
        raise typer.Exit(run_guarded(function(session, **arguments), session))

    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    shared: dict[str, Any] = {
        "namesrv": NamesrvOption,
        "output": OutputOption,
        "api_key_file": ApiKeyFileOption,
        "ca_file": CaFileOption,
    }
    parameters = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(
            p.replace(
                annotation=completed(p.name, hints[p.name]), kind=inspect.Parameter.KEYWORD_ONLY
            )
            for p in own
        ),
        *(
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
            for n, hint in shared.items()
        ),
    ]
    # typer reads both: the names and defaults here, the types there.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # it may be set
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def run_guarded(work: Coroutine[Any, Any, int | None], session: Session) -> int:
    """Run *work* on an event loop and return the exit code; failures become one line.

    If *work* has left blocking work behind, the process ends here.
    """
    code = _guarded(work, session)
    leave_at_once(code)
    return code


def _guarded(work: Coroutine[Any, Any, int | None], session: Session) -> int:
    from eruca.contract.errors import ErucaError  # not needed for --help

    with _Signals() as signals:
        try:
            return asyncio.run(signals.ending(work)) or 0
        except asyncio.CancelledError:
            if signals.code is None:
                raise
            return signals.code
        except BrokenPipeError:
            leave_unread(sys.stdout)  # the reader of the output has closed it
            return 0
        except ErucaError as error:
            report_error(session, error)
        except OSError as error:
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            report(session, text, {"code": "os-error", "detail": text})
        return EXIT_FAILED


class _Signals:
    """Cancels a command's task on Ctrl-C and on SIGTERM; a second signal ends the process at once.

    The handler raises no exception: :mod:`eruca.cli.stoppable` says why.
    """

    def __init__(self) -> None:
        self.code: int | None = None  # of the exit, after a signal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Handle the signals, which only the main thread receives.

        One that the parent has set to be ignored still is: a shell does so for jobs in the
        background, which Ctrl-C must leave alone. None is a handler that Python did not install.
        """
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Let others handle the signals again."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    async def ending(self, work: Coroutine[Any, Any, int | None]) -> int | None:
        """Return the result of *work*; cancel it after a signal."""
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            if self.code is not None:  # it came before the event loop ran
                work.close()
                raise asyncio.CancelledError
            return await work
        finally:
            self._loop = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.code is not None:
            os._exit(_SIGNALS[number])
        self.code = _SIGNALS[number]
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        assert self._task is not None, "it is set with the loop that runs it"
        self._task.cancel()


def error_line(error: ErucaError) -> str:
    """Return an error as one line: what happened, and what to do."""
    line = _detail(error).rstrip(".")
    # The detail of invalid values already has the fix of each; the default fix adds nothing.
    is_said = error.errors and error.fix == error.default_fix
    if error.fix and not is_said:
        line += f". To fix it: {error.fix}"
    return " ".join(line.split())  # a quoted answer may contain line ends


def _detail(error: ErucaError) -> str:
    """Return the error's detail and its notes, such as the server that answered."""
    return "; ".join((error.detail, *getattr(error, "__notes__", ())))


def report_error(session: Session, error: ErucaError) -> None:
    """Print *error* as :func:`report` does."""
    report(session, error_line(error), error.problem() | {"detail": _detail(error)})


def report(session: Session, line: str, problem: dict[str, Any]) -> None:
    """Print a failure to stderr: as *line*, or for programs as *problem*."""
    if session.is_json:
        import msgspec

        session.say(msgspec.json.encode(problem).decode())
    else:
        session.say(f"error: {line}")
