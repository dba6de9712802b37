"""Settings: the environment, read once at start, checked, and frozen.

A service subclasses :class:`ServiceSettings` and sets its prefix; ``ERUCA_THING_PORT`` is then the
field ``port``. A field with a ``validation_alias`` uses that variable instead, which is shared with
others. An invalid value, or an unknown variable with the prefix, stops the start with a line that
names the variable, its value and the valid ones: a misspelt setting must not look like a default.

A field with ``repr=False`` may hold a secret. No error repeats its value, and a file may hold it:
``DATABASE_URL_FILE`` names the file with ``DATABASE_URL``.

:mod:`.settings_file` reads a file of settings for what the environment lacks.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from eruca.contract.urls import checked_url
from eruca_chassis.admission.cross_origin import CrossOrigin, origins_of
from eruca_chassis.admission.hosts import AllowedHosts, hosts_of
from eruca_chassis.connections.peers import PeerSource
from eruca_chassis.guard import Guard
from eruca_chassis.logging import LogLevel, LogStyle
from eruca_chassis.sockets.listening import bare_host, is_loopback
from eruca_chassis.sockets.tls import ClientCertificates, TlsFiles
from eruca_chassis.sockets.unix_sockets import mode_of, path_of
from eruca_chassis.spans.tracing import Traces

SECRET_FILE_SUFFIX: Final = "_FILE"  # of the variable that names the file with a secret


class SettingsError(Exception):
    """There are invalid settings; ``faults`` has one line for each."""

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


def _checked_path(text: str | None) -> str | None:
    if text is not None:
        path_of(text)
    return text


def _checked_mode(text: str) -> str:
    mode_of(text)
    return text


def _needs_certificate(path: Path | None, info: ValidationInfo) -> Path | None:
    if path is not None and info.data.get("tls_cert_file") is None:
        raise ValueError("needs tls_cert_file, which is not set")
    return path


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
    traces: Traces = Field(
        default="",
        validation_alias="ERUCA_TRACES",
        description="otlp: export a span of each request of a sampled trace by OTLP/HTTP, as "
        "OpenTelemetry's variables (OTEL_…) say; requires the extra otel",
    )
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

    auth_file: str | None = Field(
        default=None,
        min_length=1,
        validation_alias="ERUCA_AUTH_FILE",
        description="file of rules and API keys that decide who may do what; none: everybody who "
        "reaches the service may do everything",
    )
    auth: Literal["", "open", "controller"] = Field(
        default="",
        validation_alias="ERUCA_AUTH",
        description="controller: the rules are those of the controllers; open: listen beyond this "
        "machine although there are no rules",
    )
    auth_urls: Annotated[str, AfterValidator(checked_urls)] = Field(
        default="",
        validation_alias="ERUCA_CONTROLLER_URLS",
        description="URLs of the controllers whose rules hold, separated by semicolons",
    )
    policy_file: Path | None = Field(
        default=None,
        description="file that keeps the controllers' last rules for when none answers; a process "
        "of its own needs a file of its own; default: policy.json in a directory of its own",
    )

    listen: Annotated[str | None, AfterValidator(_checked_path)] = Field(
        default=None,
        description="unix:/PATH: listen on this Unix socket, for a proxy on this machine, and on "
        "no address; its clients come by the proxy's URL",
    )
    listen_mode: Annotated[str, AfterValidator(_checked_mode)] = Field(
        default="0660", description="mode of the Unix socket's file, in octal digits"
    )
    listen_peer: PeerSource = Field(
        default="none",
        description="how the proxy on the Unix socket says who the client is: proxy_protocol "
        "(version 2), or forwarded (the header Forwarded of RFC 7239)",
    )
    listen_client_cert: bool = Field(
        default=False,
        description="whether the proxy on the Unix socket sends the client's verified certificate "
        "in the header Client-Cert (RFC 9440), and drops such a header of the client",
    )
    tls_cert_file: Path | None = Field(
        default=None,
        description="the certificate with its chain, in PEM form: the service speaks TLS only, "
        "and its URLs begin with https://; read again when it changes",
    )
    tls_key_file: Annotated[Path | None, AfterValidator(_needs_certificate)] = Field(
        default=None, description="its private key; default: it is in tls_cert_file"
    )
    tls_client_ca_file: Annotated[Path | None, AfterValidator(_needs_certificate)] = Field(
        default=None,
        description="the authorities of client certificates; default: clients need none",
    )
    tls_client_certificates: ClientCertificates = Field(
        default="required",
        description="whether clients need a certificate, if tls_client_ca_file is set; optional: "
        "one that is shown must be valid",
    )
    tls_handshake_seconds: float = Field(
        default=10, gt=0, description="seconds for a TLS handshake"
    )

    @property
    def socket_path(self) -> Path | None:
        """The path of the Unix socket; None: it listens on an address."""
        return None if self.listen is None else path_of(self.listen)

    @property
    def socket_mode(self) -> int:
        """The mode of the Unix socket's file."""
        return mode_of(self.listen_mode)

    keeps_policy: ClassVar[bool] = False
    """True if the service itself is the place of the controllers' rules."""

    @property
    def policy_path(self) -> Path:
        """The path of the file that keeps the last rules."""
        directory = self.prefix().removeprefix("ERUCA_").strip("_").lower().replace("_", "-")
        return self.policy_file or Path(directory) / "policy.json"

    @property
    def has_rules(self) -> bool:
        """True if rules decide who may do what."""
        return self.auth_file is not None or self.auth == "controller"

    def _conflicts(self) -> list[str]:
        """Return a line for each setting that another one rules out."""
        return [*self._listening_conflicts(), *self._policy_conflicts()]

    def _policy_conflicts(self) -> list[str]:
        if self.auth != "controller" or self.keeps_policy:
            return []
        faults = []
        if self.auth_file is not None:
            faults.append(
                f"ERUCA_AUTH_FILE={self.auth_file}: not with ERUCA_AUTH=controller, by which the "
                "rules are those of the controllers; unset one of them"
            )
        if not split_urls(self.auth_urls):
            faults.append(
                "ERUCA_CONTROLLER_URLS: required with ERUCA_AUTH=controller; set it to the URLs "
                "of the controllers, separated by ';'"
            )
        return faults

    def _listening_conflicts(self) -> list[str]:
        variables = self.variables()
        faults: list[str] = []
        if self.listen is None:
            if self.listen_peer != "none":
                faults.append(
                    f"{variables['listen_peer']}={self.listen_peer}: only for a Unix socket: over "
                    f"TCP every client could claim any address; set {variables['listen']}"
                )
            if self.listen_client_cert:
                faults.append(
                    f"{variables['listen_client_cert']}=true: only for a Unix socket: over TCP "
                    f"every client could claim any certificate; set {variables['listen']}"
                )
            return faults
        if self.tls_cert_file is not None:
            faults.append(
                f"{variables['tls_cert_file']}={self.tls_cert_file}: not with "
                f"{variables['listen']}: there the proxy speaks TLS"
            )
        if "advertised_url" in variables and not self.announced_urls():
            faults.append(
                f"{variables['advertised_url']}: required with {variables['listen']}: set it to "
                "the proxy's URL, because no client on another machine reaches a path"
            )
        return faults

    @property
    def scheme(self) -> str:
        """The scheme of the service's URLs."""
        return "http" if self.tls_cert_file is None else "https"

    def tls_files(self) -> TlsFiles | None:
        """Return the files of the service's TLS; None: it speaks plain HTTP."""
        if self.tls_cert_file is None:
            return None
        return TlsFiles(
            self.tls_cert_file,
            self.tls_key_file,
            self.tls_client_ca_file,
            self.tls_client_certificates,
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
    def distribution(cls) -> str:
        """Return the name of the distribution that the class comes from, and of its command."""
        return cls.__module__.partition(".")[0].replace("_", "-")  # it has the package's name

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Return the environment variable of each field, in the fields' order."""
        return {
            name: str(field.validation_alias or cls.prefix() + name.upper())
            for name, field in cls.model_fields.items()
        }

    @classmethod
    def secret_files(cls) -> dict[str, str]:
        """Return, for each variable that may hold a secret, the one that names its file."""
        return {
            variable: variable + SECRET_FILE_SUFFIX
            for name, variable in cls.variables().items()
            if not cls.model_fields[name].repr
        }

    @classmethod
    def load(cls, sources: Mapping[str, str] | None = None) -> Self:
        """Return the settings from this process's environment.

        Args:
            sources: For variables that were not set by the environment itself: the words by which
                faults name them, instead of the variable.

        Raises:
            SettingsError: A setting is invalid or unknown.
        """
        named = dict(sources or {})
        faults = cls._unknown(os.environ)
        secrets: dict[str, Any] = {}
        for variable, file_variable in cls.secret_files().items():
            try:
                secret = _secret_of(os.environ, variable, file_variable)
            except ValueError as error:
                faults.append(f"{file_variable}: {error}")
                continue
            if secret is not None:
                secrets[cls._argument_of(variable)] = secret
                named[variable] = named.get(file_variable, file_variable)
        try:
            settings = cls(**secrets)
        except ValidationError as error:
            faults += map(cls._fault, error.errors())
        else:
            faults += settings._conflicts()
            faults += settings.exposure_faults()
        if faults:
            raise SettingsError([_with_source(fault, named) for fault in faults])
        return settings

    @classmethod
    def _argument_of(cls, variable: str) -> str:
        """Return the argument of the constructor for *variable*."""
        [name] = [name for name, known in cls.variables().items() if known == variable]
        return str(cls.model_fields[name].validation_alias or name)

    def exposure_faults(self) -> list[str]:
        """Return why the service may not listen where it is to: others reach it without rules.

        A Unix socket counts as exposed: a proxy before it is there to let others reach it.
        """
        if self.has_rules or self.auth:
            return []
        if self.listen is None and is_loopback(self.host):
            return []
        variable = "host" if self.listen is None else "listen"
        place = self.host if self.listen is None else self.listen
        means = "address" if self.listen is None else "socket through its proxy"
        return [
            f"{self.variables()[variable]}={place}: others reach this {means}, and there are no "
            "rules; set ERUCA_AUTH_FILE to a file of rules, or ERUCA_AUTH=controller, or "
            "ERUCA_AUTH=open to let everybody do everything"
        ]

    @classmethod
    def _unknown(cls, variables: Mapping[str, str]) -> list[str]:
        prefix = cls.prefix()
        known = {name.upper(): variable for name, variable in cls.variables().items()}
        valid = {*known.values(), *cls.secret_files().values(), *cls.shared_variables}
        return [
            f"{variable}: unknown setting; {nearest(variable.removeprefix(prefix), known)}"
            for variable in sorted(variables)
            if variable.startswith(prefix) and variable not in valid
        ]

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


def nearest(name: str, known: Mapping[str, str]) -> str:
    """Return advice on an unknown *name*: the nearest known one as it is set, or all of them."""
    near = difflib.get_close_matches(name, known, n=1)
    others: Iterable[str] = sorted(known.values())
    return f"did you mean {known[near[0]]}?" if near else f"valid settings: {', '.join(others)}"


def _secret_of(variables: Mapping[str, str], variable: str, file_variable: str) -> str | None:
    """Return the text of the file that *file_variable* names; None: it is not set.

    Raises:
        ValueError: The file cannot be read or is empty, or *variable* is set, too.
    """
    path = variables.get(file_variable)
    if not path:
        return None
    if variables.get(variable):
        raise ValueError(f"not with {variable}; unset one of them")
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text in UTF-8") from None
    if not text:
        raise ValueError(f"{path} is empty; write the value of {variable} into it")
    return text


def _with_source(fault: str, named: Mapping[str, str]) -> str:
    """Return *fault* with the words of *named* for the variable at its beginning."""
    variable = fault.partition(":")[0].partition("=")[0]
    return named.get(variable, variable) + fault.removeprefix(variable)
