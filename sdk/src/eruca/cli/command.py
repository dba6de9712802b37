"""Turn an async function into a command: shared options, one event loop, errors as one line.

Exit codes::

    0    success
    1    failure: stderr says what happened and how to fix it; or the doctor found faults
    2    the command line is wrong
    3    sent, except for bad rows that were skipped
    130  stopped by Ctrl-C
    143  stopped by SIGTERM, in the same orderly way
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

import typer

from eruca.cli.completion import completed
from eruca.cli.session import Output, Session, leave_unread

if TYPE_CHECKING:
    from eruca.contract.errors import ErucaError

EXIT_FAILED: Final = 1
EXIT_ROWS_SKIPPED: Final = 3
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143

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
    """Run *work* on an event loop and return the exit code; failures become one line."""
    from eruca.contract.errors import ErucaError  # not needed for --help

    termination = _Termination()
    try:
        return asyncio.run(termination.ending(work)) or 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except asyncio.CancelledError:
        if not termination.is_asked_for:
            raise
        return EXIT_TERMINATED
    except BrokenPipeError:
        leave_unread(sys.stdout)  # the reader of the output has closed it
        return 0
    except ErucaError as error:
        report(session, error_line(error), error.problem() | {"detail": _detail(error)})
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        report(session, text, {"code": "os-error", "detail": text})
    return EXIT_FAILED


class _Termination:
    """Makes SIGTERM end a command as Ctrl-C does: asyncio cancels the command's task."""

    def __init__(self) -> None:
        self.is_asked_for = False
        self._task: asyncio.Task[Any] | None = None

    async def ending(self, work: Coroutine[Any, Any, int | None]) -> int | None:
        """Return the result of *work*; cancel it on SIGTERM."""
        # only the main thread receives signals
        if threading.current_thread() is threading.main_thread():
            self._task = asyncio.current_task()
            with suppress(NotImplementedError):  # on Windows, SIGTERM ends a process at once
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end)
        return await work

    def _end(self) -> None:
        assert self._task is not None
        self.is_asked_for = True
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


def report(session: Session, line: str, problem: dict[str, Any]) -> None:
    """Print a failure to stderr: as *line*, or for programs as *problem*."""
    if session.is_json:
        import msgspec

        session.say(msgspec.json.encode(problem).decode())
    else:
        session.say(f"error: {line}")
