"""Settings: the environment, read once at start, checked, and frozen.

A service subclasses :class:`ServiceSettings` and sets its prefix; ``ERUCA_THING_PORT`` is then the
field ``port``. A field with a ``validation_alias`` uses that variable instead, which is shared with
others. An invalid value, or an unknown variable with the prefix, stops the start with a line that
names the variable, its value and the valid ones: a misspelt setting must not look like a default.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, ClassVar, Final, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from eruca.contract.urls import checked_url
from eruca_chassis.cross_origin import CrossOrigin, origins_of
from eruca_chassis.guard import Guard
from eruca_chassis.hosts import AllowedHosts, hosts_of
from eruca_chassis.listening import bare_host
from eruca_chassis.logging import LogLevel, LogStyle

SETTINGS_EXIT_CODE: Final = 2  # the exit code of a process whose settings are invalid
_HELP: Final = ("--help", "-h")
_VERSION: Final = "--version"


class SettingsError(Exception):
    """The environment contains invalid settings; ``faults`` has one line for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = list(faults)


def at_least(other: str, *, times: float = 1) -> AfterValidator:
    """Return a validator: the value must be at least *times* the setting *other*.

    The field of *other* must be declared before the validated one.
    """

    def check(number: float, info: ValidationInfo) -> float:
        lowest = info.data.get(other)  # None: it is invalid itself, and reported separately
        if lowest is not None and number < times * lowest:
            factor = "" if times == 1 else f"{times:g} times "
            raise ValueError(f"must be at least {factor}{other}, which is {lowest}")
        return number

    return AfterValidator(check)


def checked_segment(name: str) -> str:
    """Return *name* if it is valid as a segment of a URL's path: dots alone have another meaning.

    Raises:
        ValueError: It is not valid.
    """
    if not name.strip("."):
        raise ValueError("must not be dots alone; add a letter or a digit")
    return name


def checked_urls(text: str) -> str:
    """Return *text* if it holds valid URLs of servers, for :func:`split_urls`, or is empty.

    Raises:
        ValueError: One of them is invalid.
    """
    for url in split_urls(text):
        try:
            checked_url(url)
        except ValueError as error:
            raise ValueError(f"{url!r}: {error}; separate several by ';'") from None
    return text


def split_urls(text: str) -> list[str]:
    """Split *text* at semicolons into URLs, without trailing slashes."""
    return [url.strip().rstrip("/") for url in text.split(";") if url.strip()]


def _checked_origins(text: str) -> str:
    origins_of(text)
    return text


def _checked_hosts(text: str) -> str:
    hosts_of(text)
    return text


class ServiceSettings(BaseSettings):
    """The settings of every service."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")
    shared_variables: ClassVar[frozenset[str]] = frozenset()
    """Variables with the service's prefix that are not its settings."""

    host: Annotated[str, AfterValidator(bare_host)] = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on: an IP address; a name, with all its addresses; "
        "0.0.0.0: every IPv4 address of this machine; '::': every address",
    )
    port: int = Field(default=0, ge=0, le=65_535, description="port to listen on; 0: any free one")
    group_access: bool = Field(
        default=False,
        description="whether the group of its files may read them (modes 0640 and 0750); if not, "
        "only the user it runs as (0600 and 0700)",
    )
    log_level: LogLevel = Field(default="info", description="lowest level that is logged")
    log_style: LogStyle = Field(default="auto", description="auto: console on a terminal")
    backlog: int = Field(
        default=2_048, ge=1, le=2**31 - 1, description="connections that may wait in the kernel"
    )
    connections_max: int = Field(
        default=10_000,
        ge=1,
        description="open connections, each about 10 KB; fewer if the limit of open files allows "
        "no more. Beyond it the connection that has been idle longest is closed",
    )
    keep_alive_seconds: int = Field(
        default=75, ge=1, description="seconds after which an idle connection is closed"
    )
    head_seconds: float = Field(
        default=10, gt=0, description="seconds for a request's head to arrive"
    )
    request_seconds: float = Field(
        default=30, gt=0, description="seconds for a complete request to arrive"
    )
    bytes_per_second_min: int = Field(
        default=1024,
        ge=0,
        le=1024 * 1024,
        description="minimum rate at which a request's body must arrive, over any 5 s, and its "
        "answer be read; 0: none",
    )
    client_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="share of each budget of bytes in flight that one client may hold: an IPv4 "
        "address, or an IPv6 network of 64 bits. 1: all of it, for instance behind a proxy",
    )
    unread_seconds: float = Field(
        default=30, gt=0, description="seconds after which a client that reads nothing is cut off"
    )
    unread_bytes_max: int = Field(
        default=256 * 1024 * 1024,
        ge=1024 * 1024,
        description="bytes of unread answers of all connections",
    )
    stop_seconds: int = Field(
        default=10, ge=1, description="seconds for requests to end during shutdown"
    )
    allowed_hosts: Annotated[str, AfterValidator(_checked_hosts)] = Field(
        default="",
        description="accepted host names, in addition to IP addresses, localhost and those that "
        "the service announces: NAME or *.NAME, separated by ';'",
    )
    explorer_origins: Annotated[str, AfterValidator(_checked_origins)] = Field(
        default="",
        description="sites whose pages may call the service from a browser, such as a docs "
        "explorer's: http://HOST:PORT, separated by ';'",
    )

    def announced_urls(self) -> Collection[str]:
        """Return the URLs that clients get for the service, as far as settings define them."""
        return ()

    def guard(self) -> Guard:
        """Return the guard of a service with these settings."""
        announced = (urlsplit(url).hostname or "" for url in self.announced_urls())
        names = (self.host, *announced, *hosts_of(self.allowed_hosts))
        variable = self.variables()["allowed_hosts"]
        return Guard(AllowedHosts(names, variable), CrossOrigin(origins_of(self.explorer_origins)))

    @classmethod
    def prefix(cls) -> str:
        """Return the prefix of the service's variables."""
        return str(cls.model_config["env_prefix"])

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Return the environment variable of each field, in the fields' order."""
        return {
            name: str(field.validation_alias or cls.prefix() + name.upper())
            for name, field in cls.model_fields.items()
        }

    @classmethod
    def load(cls) -> Self:
        """Return the settings from this process's environment.

        Raises:
            SettingsError: A setting is invalid or unknown.
        """
        faults = cls._unknown(os.environ)
        try:
            settings = cls()
        except ValidationError as error:
            raise SettingsError([*faults, *map(cls._fault, error.errors())]) from None
        if faults:
            raise SettingsError(faults)
        return settings

    @classmethod
    def _unknown(cls, variables: Mapping[str, str]) -> list[str]:
        prefix = cls.prefix()
        known = {name.upper(): variable for name, variable in cls.variables().items()}
        faults = []
        for variable in sorted(variables):
            name = variable.removeprefix(prefix)
            if name == variable or variable in cls.shared_variables:
                continue
            if variable in known.values():
                continue
            near = difflib.get_close_matches(name, known, n=1)
            others = ", ".join(sorted(known.values()))
            fix = f"did you mean {known[near[0]]}?" if near else f"valid settings: {others}"
            faults.append(f"{variable}: unknown setting; {fix}")
        return faults

    @classmethod
    def _fault(cls, error: Mapping[str, object]) -> str:
        location = error["loc"]
        assert isinstance(location, tuple)
        message = str(error["msg"]).removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        if not location:
            return f"{cls.prefix()}*={error['input']}: {message}"
        variables = cls.variables()
        # pydantic reports a field under its alias, if it has one.
        name = next(name for name in variables if location[0] in (name, variables[name]))
        field = cls.model_fields[name]
        value = f"={error['input']}" if field.repr else ""  # repr=False: it may hold a secret
        about = f" ({field.description})" if field.description else ""
        return f"{variables[name]}{value}: {message}{about}"


_Settings = TypeVar("_Settings", bound=ServiceSettings)


def settings_or_exit(kind: type[_Settings], arguments: Sequence[str]) -> _Settings:
    """Return the settings; or print their faults to stderr and end the process.

    A service takes two arguments: ``--help`` lists its settings, and ``--version`` prints the
    distribution and its version. Neither reads a setting.
    """
    faults = [
        f"{argument}: unknown argument; valid arguments: --help, --version; settings are "
        f"environment variables, such as {kind.prefix()}PORT"
        for argument in arguments
        if argument not in (*_HELP, _VERSION)
    ]
    if not faults and arguments:
        is_help = any(argument in _HELP for argument in arguments)
        sys.stdout.write(settings_help(kind) if is_help else _version_line(kind))
        raise SystemExit(0)
    if not faults:
        try:
            return kind.load()
        except SettingsError as error:
            faults = error.faults
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    raise SystemExit(SETTINGS_EXIT_CODE)


def _version_line(kind: type[ServiceSettings]) -> str:
    """Return the name and version of the distribution that *kind* comes from."""
    package = kind.__module__.partition(".")[0]  # the distribution has the package's name
    return f"{package.replace('_', '-')} {version(package)}\n"


def settings_help(kind: type[ServiceSettings]) -> str:
    """Return a line for each setting: its variable, meaning and default."""
    lines = ["Settings, read from the environment:\n"]
    for name, variable in kind.variables().items():
        field = kind.model_fields[name]
        default = "required" if field.is_required() else f"default {field.get_default()!s}"
        lines.append(f"  {variable}\n      {field.description} [{default}]\n")
    return "\n".join(lines)
