"""The session of a command: access to the cluster, and output of results.

Tables are for people. In a pipe they have no borders, so that ``grep`` and ``cut`` work on them.
JSON is for programs: one document, or one object per line for a stream of messages. Everything else
(progress, counts, errors) goes to stderr.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

    from eruca.aio.client import AsyncClient
    from eruca.aio.http.credentials import Credentials
    from eruca.cli.tables import WholeWords
    from eruca.core.credentials import ApiKeyFile, TlsFiles
    from eruca.core.messages.received_message import ReceivedMessage

_PIPE_WIDTH = 1_000_000  # columns; a pipe has no width to fit


class Output(StrEnum):
    """The output format of results."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Session:
    """The options of every command."""

    namesrv_urls: str | None = None  # None: the environment's, else the default
    output: Output = Output.TABLE
    api_key_file: str | None = None  # None: the environment's credentials
    ca_file: str | None = None  # None: the environment's TLS files

    @property
    def is_json(self) -> bool:
        """Tell whether to print results as JSON."""
        return self.output is Output.JSON

    def client(self) -> AsyncClient:
        """Return a client of the cluster; use it as a context manager."""
        from eruca.aio.client import AsyncClient  # slow to load, and --help does not need it

        return AsyncClient(
            self.namesrv_urls, credentials=self._given_credentials(), tls_files=self._tls_files()
        )

    def credentials(self) -> Credentials:
        """Return the credentials for requests that no client makes."""
        from eruca.aio.http.credentials import credentials_of

        return credentials_of(
            os.environ, given=self._given_credentials(), tls_files=self._tls_files()
        )

    def _given_credentials(self) -> ApiKeyFile | None:
        from eruca.core.credentials import ApiKeyFile

        return None if self.api_key_file is None else ApiKeyFile(self.api_key_file)

    def _tls_files(self) -> TlsFiles | None:
        from eruca.core.credentials import TlsFiles

        if self.ca_file is None:
            return None
        files = TlsFiles.of(os.environ)
        return TlsFiles(self.ca_file, files.cert_file, files.key_file)

    def show_json(self, value: object) -> None:
        """Print one JSON document."""
        import msgspec

        text = msgspec.json.encode(value, enc_hook=_plain)
        _write(sys.stdout, msgspec.json.format(text, indent=2).decode() + "\n")

    def show_line(self, value: object) -> None:
        """Print one JSON object on its own line, at once."""
        import msgspec

        _write(sys.stdout, msgspec.json.encode(value, enc_hook=_plain).decode() + "\n")

    def show_table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        none: str | None = None,
    ) -> None:
        """Print a table, or records if it is too wide; None is a dash, never 0.

        If there is no row, print *none* to stderr, if it is given.
        """
        shown = list(rows)
        if not shown and none is not None:
            self.say(none)
            return
        output_console().print(self.table(headings, shown), crop=False)

    def table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str | None = None,
    ) -> WholeWords:
        """Return a table as :meth:`show_table` prints it."""
        from eruca.cli.tables import WholeWords

        return WholeWords(headings, rows, title=title)

    def show_record(self, fields: Iterable[tuple[str, object]]) -> None:
        """Print names and values, one per line; None is a dash."""
        from eruca.cli.tables import record_lines

        console = output_console()
        for line in record_lines(fields):
            console.print(line, soft_wrap=True)

    def show_text(self, text: str) -> None:
        """Print a line of the result unchanged."""
        _write(sys.stdout, text + "\n")

    def show_messages(self, messages: Sequence[ReceivedMessage]) -> None:
        """Print messages, one per line, at once."""
        from eruca.cli.shown_messages import message_document, message_line

        if self.is_json:
            import msgspec

            lines = msgspec.json.Encoder().encode_lines(map(message_document, messages))
            _write(sys.stdout, lines.decode())
            return
        console = output_console()
        if not console.is_terminal:
            _write(sys.stdout, "".join(f"{message_line(m).plain}\n" for m in messages))
            return
        for message in messages:
            console.print(message_line(message), soft_wrap=True)

    def check_reader(self) -> None:
        """Check that the output still has a reader, if it is a pipe.

        Only a write would raise an error, and a command that follows a quiet topic writes nothing.

        Raises:
            BrokenPipeError: The reader has left.
        """
        try:
            descriptor = sys.stdout.fileno()
        except OSError:  # not a file: a test has replaced it
            return
        poll = select.poll()
        poll.register(descriptor, 0)  # errors are always reported
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError

    def write_octets(self, octets: bytes) -> None:
        """Write a body to stdout unchanged."""
        sys.stdout.flush()
        sys.stdout.buffer.write(octets)
        sys.stdout.buffer.flush()

    def say(self, text: str) -> None:
        """Print a line for people to stderr, so that it never mixes with results.

        If stderr has no reader any more, print nothing: that must not end the command.
        """
        try:
            _write(sys.stderr, text + "\n")
        except BrokenPipeError:
            leave_unread(sys.stderr)


def leave_unread(stream: TextIO) -> None:
    """Discard the content and all later output of *stream*: its reader has left."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


def output_console() -> Console:
    """Return a console for results; without a terminal, its width is unlimited."""
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # the command handles it for every way of printing

    is_terminal = sys.stdout.isatty()
    return PipedConsole(
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not is_terminal,
        width=None if is_terminal else _PIPE_WIDTH,
    )


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


def _plain(value: object) -> object:
    """Return a pydantic model as a dict, because msgspec cannot encode it."""
    from pydantic import BaseModel

    assert isinstance(value, BaseModel), type(value)
    return value.model_dump(mode="json")
