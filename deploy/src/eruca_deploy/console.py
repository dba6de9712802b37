"""The output of a local cluster: each child's lines after its coloured name, and next steps."""

from __future__ import annotations

import errno
import io
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from eruca.contract.broker_groups import BrokerGroupView
from eruca_deploy.plan import (
    CONSOLE_MODULE,
    CONTROLLER_PORT,
    NAMESRV_PORT,
    ClusterPlan,
    Service,
    replica_name,
)
from eruca_postgres.embedded import running_url

_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan")
_NAME_WIDTH: Final = 11
_SUPERVISOR: Final = "cluster"
_STORE: Final = "ERUCA_CONTROLLER_STORE"


class ClusterConsole(Console):
    """Prints whole lines, so that the output of several children never mixes within one.

    When the reader of the output disappears, for instance with a terminal's window, it falls silent
    and calls ``on_reader_gone``. Output that cannot be written for other reasons, such as a full
    disk, is dropped: no service ends because of that.
    """

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # its encoding may lack characters
        self.on_reader_gone: Callable[[], None] | None = None
        self._prefix_colours: dict[str, str] = {}

    def child_line(self, name: str, text: str) -> None:
        """Print one line of a child's output; its own colours are kept."""
        self._prefixed(name, self._colour(name), Text.from_ansi(text))

    def child_event(self, name: str, text: str) -> None:
        """Print the supervisor's message about a child."""
        self._prefixed(_SUPERVISOR, "bold", Text(f"{name} {text}", style="bold"))

    def say(self, text: str) -> None:
        """Print the supervisor's message about the cluster."""
        self._prefixed(_SUPERVISOR, "bold", Text(text, style="bold"))

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401  (rich's own)
        """Print, unless the output is gone."""
        try:
            super().print(*objects, **options)
        except OSError as error:
            if error.errno == errno.EIO:  # the terminal's window was closed
                self.on_broken_pipe()
            else:
                self._forget_unprinted()

    def on_broken_pipe(self) -> None:
        """Fall silent instead of ending the process, so that the children are stopped in order."""
        self.quiet = True
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())  # otherwise the interpreter complains at exit
        os.close(devnull)
        if self.on_reader_gone is not None:
            self.on_reader_gone()

    def _forget_unprinted(self) -> None:
        """Drop buffered output that could not be written; rich would retry it with every line."""
        was_quiet, self.quiet = self.quiet, True
        super().print()
        self.quiet = was_quiet

    def _prefixed(self, name: str, colour: str, content: Text) -> None:
        prefix = Text(f"{name:<{_NAME_WIDTH}} │ ", style=colour)
        self.print(prefix + content, soft_wrap=True, highlight=False)

    def _colour(self, name: str) -> str:
        known = self._prefix_colours
        return known.setdefault(name, _COLOURS[len(known) % len(_COLOURS)])


def ready_report(
    plan: ClusterPlan,
    data_dir: Path,
    *,
    seconds: float,
    resident_bytes: int,
    groups: Mapping[str, BrokerGroupView],
    environment: Mapping[str, str],
    client_environment: Mapping[str, str],
) -> RenderableType:
    """Return the table of services, and commands to try; no URL or path is broken.

    Args:
        plan: The services.
        data_dir: Their data.
        seconds: Duration of the start.
        resident_bytes: Memory of all processes.
        groups: The brokers' groups, if brokers have replicas.
        environment: Of the supervisor.
        client_environment: The variables of a person's programs.
    """
    table = Table(
        title="Eruca is ready", title_justify="left", title_style="bold green", box=box.SIMPLE_HEAD
    )
    for heading in ("service", *(["role"] if groups else []), "URL", "data"):
        table.add_column(heading, no_wrap=True)
    for service in plan.services:
        role = [role_of(service, groups)] if groups else []
        table.add_row(service.name, *role, service.url, _data_of(service, data_dir))
    summary = (
        f"ready in {seconds:.1f} s; {len(plan.services)} processes hold "
        f"{resident_bytes / 2**20:.0f} MiB; Ctrl-C stops\ndata in {data_dir}"
    )
    explorer = (
        f"Read and try every service's API: {plan.queries[0].url}/docs"
        if plan.queries
        else "Read and try each service's API: /docs after its URL"
    )
    pages = [f"Look at the cluster in a browser: {one.url}" for one in plan.consoles]
    return Group(
        Text(),
        table,
        _whole(summary),
        Text(),
        *(_whole(line, style="bold") for line in pages),
        _whole(explorer, style="bold"),
        Text(),
        _try_this(plan, environment, client_environment),
        Text(),
    )


def role_of(service: Service, groups: Mapping[str, BrokerGroupView]) -> str:
    """Return the role of a broker's replica; empty for other services."""
    group = groups.get(service.broker_name or "")
    if group is None:
        return ""
    if replica_name(group.broker_name, group.master.replica_id) == service.name:
        return f"master, epoch {group.epoch}"
    in_sync = {replica_name(group.broker_name, one.replica_id) for one in group.in_sync}
    return "in sync" if service.name in in_sync else "catching up"


def _try_this(
    plan: ClusterPlan, environment: Mapping[str, str], client_environment: Mapping[str, str]
) -> RenderableType:
    standard = f"http://127.0.0.1:{NAMESRV_PORT}"
    lines = [
        f"export {name}={shlex.quote(value)}"
        for name, value in client_environment.items()
        if standard not in value.split(";")
    ]
    controllers = ";".join(service.url for service in plan.controllers)
    if plan.has_replicas and controllers != f"http://127.0.0.1:{CONTROLLER_PORT}":
        lines.append(f"export ERUCA_CONTROLLER_URLS={shlex.quote(controllers)}")
    if (postgres_url := _postgres_url(plan)) is not None:
        lines.append(f"export DATABASE_URL={shlex.quote(postgres_url)}")
    command = _command(environment)
    lines += [
        f"{command} topic create orders",
        f"{command} send --topic orders 'order 17' --tag paid --key 17",
        f"{command} tail orders --start earliest",
        f"{command} status",
        *([f"{command} broker switch {plan.broker_names[0]}"] if plan.has_replicas else []),
        " ".join(
            [
                "curl",
                *(["-L"] if plan.has_replicas else []),
                f"{plan.brokers[0].url}/v1/topics/orders/queues",
            ]
        ),
    ]
    return Group(
        Text("Try, in another terminal:"),
        _whole("\n".join(f"  {line}" for line in lines), style="cyan"),
    )


def _whole(text: str, *, style: str = "") -> Text:
    """Return lines that are not wrapped at the terminal's edge, so that they can be copied."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")


def _command(environment: Mapping[str, str]) -> str:
    """Return the command of this installation, as called from the current directory."""
    script = Path(sys.executable).with_name("eruca")
    on_path = str(script.parent) in environment.get("PATH", "").split(":")
    if on_path:
        return "eruca"
    try:
        return str(script.relative_to(Path.cwd()))
    except ValueError:
        return str(script)


def _postgres_url(plan: ClusterPlan) -> str | None:
    """Return the URL of the cluster's own PostgreSQL; None if it has none."""
    sharing = (service for service in (*plan.txn_checkers, *plan.queries) if service.has_directory)
    first = next(sharing, None)
    return None if first is None else running_url(first.directory)


def _data_of(service: Service, data_dir: Path) -> str:
    if service.module == CONSOLE_MODULE:
        return "none"
    if not service.has_directory:
        return "etcd" if service.settings.get(_STORE) == "etcd" else "DATABASE_URL"
    return f"{service.directory.relative_to(data_dir)}/"
