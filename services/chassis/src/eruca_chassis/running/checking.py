"""``--check``: say whether a service could start, without starting it or writing anything.

Each look is a :class:`Finding`. A fault says what to change; everything else says what a start
would do. What another process does at this moment is a note, and no fault: a check is also made
beside the service that runs, before it is restarted with other settings.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry

from eruca_chassis.running.serving import why_not_listening
from eruca_chassis.running.settings import ServiceSettings
from eruca_chassis.sockets.listening import listen, shown_host
from eruca_chassis.sockets.tls import ServerTls
from eruca_chassis.spans.exporting_traces import endpoint, why_not_tracing
from eruca_chassis.start import StartError

_ANYBODY: Final = "none: everybody who reaches the service may do everything"

_Settings = TypeVar("_Settings", bound=ServiceSettings)


class Finding(NamedTuple):
    """The outcome of one look."""

    kind: Literal["ok", "note", "fault"]
    subject: str
    text: str

    def line(self) -> str:
        """Return it as a line of the report."""
        return f"{self.kind:5}  {self.subject}: {self.text}"


def findings_of(
    settings: _Settings,
    create_app: Callable[[_Settings], object],
    inspect: Callable[[_Settings], Iterable[Finding]],
) -> Iterator[Finding]:
    """Yield what a start of the service would find; *inspect* looks at its own store."""
    try:
        create_app(settings)  # reads the file of rules, and begins nothing
    except StartError as error:
        yield Finding("fault", "rules", str(error))
    else:
        yield Finding("ok", "rules", _rules(settings))
    files = settings.tls_files()
    if files is not None:
        yield _tls(ServerTls, files)
    if settings.traces:
        yield _traces(settings)
    yield _socket(settings) if settings.socket_path else _port(settings)
    yield from inspect(settings)


def directory_finding(directory: Path, subject: str, *, fix: str) -> Finding | None:
    """Return the finding about *directory* if a start would make it, or cannot use it; else None.

    Args:
        directory: Of the service's files.
        subject: Of the finding.
        fix: Ends a fault: what to set, or to permit.
    """
    if directory.is_dir():
        if os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            return None
        return Finding("fault", subject, f"{directory}: permission denied; {fix}")
    if directory.exists():
        return Finding("fault", subject, f"{directory} is not a directory; {fix}")
    above = next(parent for parent in directory.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = f"{directory} does not exist and cannot be made in {above}"
        return Finding("fault", subject, f"{why}; {fix}")
    return Finding("ok", subject, f"a start would make {directory}, which does not exist yet")


def _rules(settings: ServiceSettings) -> str:
    if settings.auth == "controller":
        return "those of the controllers, which are not asked here"
    return f"{settings.auth_file} is valid" if settings.auth_file else _ANYBODY


def _tls(load: Callable[..., ServerTls], files: object) -> Finding:
    try:
        tls = load(files, CollectorRegistry())
    except StartError as error:
        return Finding("fault", "tls", str(error))
    return Finding("ok", "tls", f"the certificate is valid until {tls.expires_at.isoformat()}")


def _traces(settings: ServiceSettings) -> Finding:
    fault = why_not_tracing(settings.distribution())
    if fault is not None:
        return Finding("fault", "traces", fault)
    return Finding("ok", "traces", f"exported to {endpoint()}, which is not called here")


def _socket(settings: ServiceSettings) -> Finding:
    path = settings.socket_path
    assert path is not None
    name = settings.variables()["listen"]
    fix = f"set {name} to a path in a directory that the service may write"
    found = directory_finding(path.parent, "socket", fix=fix)
    if found is not None and (found.kind == "fault" or not path.parent.is_dir()):
        return Finding("fault", "socket", f"{path.parent} cannot be used; {fix}")
    return Finding("ok", "socket", f"{path} can be made")


def _port(settings: ServiceSettings) -> Finding:
    where = f"{shown_host(settings.host)}:{settings.port}"
    try:
        listeners: list[socket.socket] = listen(settings.host, settings.port, backlog=1)
    except (OSError, UnicodeError) as error:
        why = why_not_listening(error, settings.prefix())
        return Finding("note" if why.is_in_use else "fault", "port", f"{where}: {why.text}")
    for listener in listeners:
        listener.close()
    return Finding("ok", "port", f"{where} is free" if settings.port else f"{where}: any free one")
