"""The plan of a local cluster: its services, their ports, directories and settings. Pure.

Layout of the data directory::

    broker-a/      the store of the first broker; broker-b/ the second's, and so on
    broker-a-2/    the store of its second replica, if brokers have replicas
    namesrv-1/     kv.json, the key-value table of the first name server
    postgres/      the embedded PostgreSQL, unless DATABASE_URL names another
    controller/    the controllers' file, if ERUCA_CONTROLLER_STORE=file

Each service has one port: name servers first, then brokers (replica by replica), transaction
checkers, query services, controllers, consoles.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import unquote

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
TXN_CHECKER_PORT: Final = 10921
QUERY_PORT: Final = 10931
CONTROLLER_PORT: Final = 9878
CONSOLE_PORT: Final = 10941
PORT_MAX: Final = 65_535

# Processes, replicas included: more would reach 10921, a checker's standard port.
BROKER_COUNT_MAX: Final = 9
REPLICA_COUNT_MAX: Final = 3
NAMESRV_COUNT_MAX: Final = 9
TXN_CHECKER_COUNT_MAX: Final = 9
QUERY_COUNT_MAX: Final = 9
CONTROLLER_COUNT_MAX: Final = 9
CONSOLE_COUNT_MAX: Final = 9

NAMESRV_MODULE: Final = "eruca_namesrv"
BROKER_MODULE: Final = "eruca_broker"
TXN_CHECKER_MODULE: Final = "eruca_txn_checker"
QUERY_MODULE: Final = "eruca_query"
CONTROLLER_MODULE: Final = "eruca_controller"
CONSOLE_MODULE: Final = "eruca_console"
MODULES: Final = (  # by port
    NAMESRV_MODULE,
    BROKER_MODULE,
    TXN_CHECKER_MODULE,
    QUERY_MODULE,
    CONTROLLER_MODULE,
    CONSOLE_MODULE,
)
POSTGRES_DIRECTORY: Final = "postgres"
CONTROLLER_DIRECTORY: Final = "controller"

GOVERNED: Final[Mapping[str, str]] = {
    "ERUCA_NAMESRV_PORT": "--base-port",
    "ERUCA_NAMESRV_KV_FILE": "--data",
    "ERUCA_NAMESRV_EXPECTED_BROKERS": "--brokers",
    "ERUCA_NAMESRV_EXPECTED_SERVICES": "--txn-checkers and --queries",
    "ERUCA_BROKER_PORT": "--base-port",
    "ERUCA_BROKER_NAME": "--brokers",
    "ERUCA_BROKER_STORE_DIR": "--data",
    "ERUCA_BROKER_NAMESRV_URLS": "--namesrvs",
    "ERUCA_BROKER_ADVERTISED_URL": "--base-port",
    "ERUCA_BROKER_CONTROLLER_URLS": "--replicas",
    "ERUCA_BROKER_REPLICA_ID": "--replicas",
    "ERUCA_TXN_CHECKER_PORT": "--base-port",
    "ERUCA_TXN_CHECKER_NAME": "--txn-checkers",
    "ERUCA_TXN_CHECKER_NAMESRV_URLS": "--namesrvs",
    "ERUCA_TXN_CHECKER_POSTGRES_DIR": "--data",
    "ERUCA_QUERY_PORT": "--base-port",
    "ERUCA_QUERY_NAME": "--queries",
    "ERUCA_QUERY_NAMESRV_URLS": "--namesrvs",
    "ERUCA_QUERY_POSTGRES_DIR": "--data",
    "ERUCA_CONTROLLER_PORT": "--base-port",
    "ERUCA_CONTROLLER_NAMESRV_URLS": "--namesrvs",
    "ERUCA_CONTROLLER_POSTGRES_DIR": "--data",
    "ERUCA_CONTROLLER_FILE": "--data",
    "ERUCA_CONSOLE_PORT": "--base-port",
    "ERUCA_CONSOLE_NAMESRV_URLS": "--namesrvs",
}
"""Settings that differ from child to child, and the option that sets each instead."""

PERSONAL: Final = (
    *("ERUCA_API_KEY", "ERUCA_API_KEY_FILE", "ERUCA_TOKEN_PROVIDER"),
    *("ERUCA_TLS_CERT_FILE", "ERUCA_TLS_KEY_FILE"),
)
"""Credentials in the environment of a person, which a console must not have."""


class PlanError(ValueError):
    """The cluster is impossible; the text says why."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the cluster."""

    name: str
    module: str
    host: str  # to bind
    port: int
    directory: Path
    settings: Mapping[str, str]
    has_directory: bool = True  # False: its data is in a store outside the cluster
    broker_name: str | None = None  # of a broker's process; its replicas share it
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Return the URL for clients on this machine."""
        return local_url(self.host, self.port, self.scheme)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Every process of a local cluster, in starting order."""

    namesrvs: tuple[Service, ...]
    brokers: tuple[Service, ...]
    txn_checkers: tuple[Service, ...] = ()
    queries: tuple[Service, ...] = ()
    controllers: tuple[Service, ...] = ()
    consoles: tuple[Service, ...] = ()

    @property
    def services(self) -> tuple[Service, ...]:
        """Return all services, name servers and controllers first."""
        first = self.namesrvs + self.controllers + self.brokers
        return first + self.txn_checkers + self.queries + self.consoles

    @property
    def broker_names(self) -> tuple[str, ...]:
        """Return the brokers' names; the replicas of a broker share one."""
        names = dict.fromkeys(service.broker_name for service in self.brokers)
        return tuple(name for name in names if name is not None)

    @property
    def has_replicas(self) -> bool:
        """Return whether brokers have replicas."""
        return len(self.brokers) > len(self.broker_names)


def broker_name(index: int) -> str:
    """Return the name of the broker at *index*, from 0: ``broker-a``, ``broker-b``."""
    return f"broker-{string.ascii_lowercase[index]}"


def replica_name(broker: str, replica_id: int) -> str:
    """Return the name of a replica's process: ``broker-a-1``, ``broker-a-2``."""
    return f"{broker}-{replica_id}"


def check_replicas(data_dir: Path, replicas: int) -> None:
    """Check that brokers with replicas are not started without them.

    A broker alone would append to its store what the other stores do not have.

    Raises:
        PlanError: *data_dir* has stores of second replicas, and *replicas* is 1.
    """
    seconds = (replica_name(broker_name(index), 2) for index in range(BROKER_COUNT_MAX))
    if replicas == 1 and any((data_dir / name).exists() for name in seconds):
        raise PlanError(
            f"the brokers in {data_dir} have replicas; give --replicas 2, or choose another --data"
        )


def bound_host(environment: Mapping[str, str], variable: str) -> str:
    """Return the host that a service binds by *variable*, as it reads it: without brackets."""
    return environment.get(variable, "127.0.0.1").strip("[]")


def local_url(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL of a service bound to *host*, for clients on this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return (
        f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
    )


def scheme_of(environment: Mapping[str, str], module: str) -> str:
    """Return the scheme of the URLs of *module*'s services: whether they speak TLS."""
    return "https" if environment.get(f"{module.upper()}_TLS_CERT_FILE") else "http"


def ports_from(
    base_port: int | None,
    *,
    namesrvs: int,
    brokers: int,
    txn_checkers: int = 0,
    queries: int = 0,
    controllers: int = 0,
    consoles: int = 0,
    replicas: int = 1,
) -> list[int]:
    """Return the ports, name servers' first; *base_port* None means the standard ones.

    Raises:
        PlanError: A count or a port is out of range.
    """
    if not 1 <= namesrvs <= NAMESRV_COUNT_MAX:
        raise PlanError(f"expected 1 to {NAMESRV_COUNT_MAX} name servers, found {namesrvs}")
    if not 1 <= replicas <= REPLICA_COUNT_MAX:
        raise PlanError(f"expected 1 to {REPLICA_COUNT_MAX} replicas, found {replicas}")
    if not 1 <= brokers <= BROKER_COUNT_MAX // replicas:
        of_each = f" with {replicas} replicas each" if replicas > 1 else ""
        raise PlanError(
            f"expected 1 to {BROKER_COUNT_MAX // replicas} brokers{of_each}, found {brokers}"
        )
    if not 0 <= txn_checkers <= TXN_CHECKER_COUNT_MAX:
        raise PlanError(f"expected 0 to {TXN_CHECKER_COUNT_MAX} checkers, found {txn_checkers}")
    if not 0 <= queries <= QUERY_COUNT_MAX:
        raise PlanError(f"expected 0 to {QUERY_COUNT_MAX} query services, found {queries}")
    if not 0 <= controllers <= CONTROLLER_COUNT_MAX:
        raise PlanError(f"expected 0 to {CONTROLLER_COUNT_MAX} controllers, found {controllers}")
    if not 0 <= consoles <= CONSOLE_COUNT_MAX:
        raise PlanError(f"expected 0 to {CONSOLE_COUNT_MAX} consoles, found {consoles}")
    processes = brokers * replicas
    if base_port is None:
        first_controller = max(CONTROLLER_PORT, NAMESRV_PORT + namesrvs)
        return [
            *range(NAMESRV_PORT, NAMESRV_PORT + namesrvs),
            *range(BROKER_PORT, BROKER_PORT + processes),
            *range(TXN_CHECKER_PORT, TXN_CHECKER_PORT + txn_checkers),
            *range(QUERY_PORT, QUERY_PORT + queries),
            *range(first_controller, first_controller + controllers),
            *range(CONSOLE_PORT, CONSOLE_PORT + consoles),
        ]
    count = namesrvs + processes + txn_checkers + queries + controllers + consoles
    last = base_port + count - 1
    if base_port < 1 or last > PORT_MAX:
        raise PlanError(f"expected ports from 1 to {PORT_MAX}, found {base_port} to {last}")
    return list(range(base_port, last + 1))


def without_own_database(environment: Mapping[str, str], socket_directory: Path) -> dict[str, str]:
    """Return *environment* without a ``DATABASE_URL`` of the cluster's own embedded server.

    The cluster prints that URL for other terminals. If it is set when the cluster is started again,
    it would lead the services to a server that nobody starts.

    Args:
        environment: The children's environment.
        socket_directory: The socket's directory of that server.
    """
    own = f"host={socket_directory}"
    is_own = own in unquote(environment.get("DATABASE_URL", "")).split("?")[-1].split("&")
    return {k: v for k, v in environment.items() if not (is_own and k == "DATABASE_URL")}


def plan_cluster(
    *,
    namesrvs: int,
    brokers: int,
    txn_checkers: int = 0,
    queries: int = 0,
    controllers: int = 0,
    consoles: int = 0,
    replicas: int = 1,
    ports: Sequence[int],
    data_dir: Path,
    environment: Mapping[str, str],
) -> ClusterPlan:
    """Return the cluster's processes.

    Args:
        namesrvs: Number of name servers.
        brokers: Number of brokers.
        txn_checkers: Number of transaction checkers.
        queries: Number of query services.
        controllers: Number of controllers; replicas need one at least.
        consoles: Number of consoles.
        replicas: Number of replicas of each broker; 1: brokers without replicas.
        ports: One for each service, name servers first.
        data_dir: Holds one directory per service, and one for PostgreSQL.
        environment: The children's environment. Only these settings are read here: the hosts to
            bind, the webhooks' reach, the explorer's origins, the controllers' store, and whether
            there is a PostgreSQL, and whether services have certificates.
    """
    assert controllers or replicas == 1
    counts = (namesrvs, brokers * replicas, txn_checkers, queries, controllers, consoles)
    assert len(ports) == sum(counts)
    unused = iter(ports)
    namesrv_ports, broker_ports, checker_ports, query_ports, controller_ports, console_ports = (
        [*islice(unused, count)] for count in counts
    )
    checker_names = [_txn_checker_name(index) for index in range(txn_checkers)]
    # With these, name servers do not wait for brokers and services that do not exist.
    expected = {
        "ERUCA_NAMESRV_EXPECTED_BROKERS": ";".join(map(broker_name, range(brokers))),
        "ERUCA_NAMESRV_EXPECTED_SERVICES": ";".join(
            [*checker_names, *map(_query_name, range(queries))]
        ),
    }
    namesrv_host = bound_host(environment, "ERUCA_NAMESRV_HOST")
    broker_host = bound_host(environment, "ERUCA_BROKER_HOST")
    name_servers = tuple(
        _namesrv(
            f"namesrv-{index + 1}",
            namesrv_host,
            port,
            data_dir,
            expected=expected,
            scheme=scheme_of(environment, NAMESRV_MODULE),
        )
        for index, port in enumerate(namesrv_ports)
    )
    namesrv_urls = ";".join(service.url for service in name_servers)
    arbiters = tuple(
        _controller(_controller_name(index), port, data_dir, namesrv_urls, environment)
        for index, port in enumerate(controller_ports)
    )
    plan = ClusterPlan(
        namesrvs=name_servers,
        brokers=tuple(
            _broker(
                broker_name(index // replicas),
                index % replicas + 1 if replicas > 1 else None,
                broker_host,
                port,
                data_dir,
                namesrv_urls=namesrv_urls,
                controller_urls=";".join(service.url for service in arbiters),
                scheme=scheme_of(environment, BROKER_MODULE),
            )
            for index, port in enumerate(broker_ports)
        ),
        txn_checkers=tuple(
            _txn_checker(name, port, data_dir, namesrv_urls, environment)
            for name, port in zip(checker_names, checker_ports, strict=True)
        ),
        queries=tuple(
            _query(_query_name(index), port, data_dir, namesrv_urls, environment)
            for index, port in enumerate(query_ports)
        ),
        controllers=arbiters,
        consoles=tuple(
            _console(_console_name(index), port, data_dir, namesrv_urls, environment)
            for index, port in enumerate(console_ports)
        ),
    )
    return _explored(plan, environment) if queries else plan


def _txn_checker_name(index: int) -> str:
    return "txn-checker" if index == 0 else f"txn-checker-{index + 1}"


def _query_name(index: int) -> str:
    return "query" if index == 0 else f"query-{index + 1}"


def _controller_name(index: int) -> str:
    return "controller" if index == 0 else f"controller-{index + 1}"


def _console_name(index: int) -> str:
    return "console" if index == 0 else f"console-{index + 1}"


def _namesrv(
    name: str, host: str, port: int, data_dir: Path, *, expected: Mapping[str, str], scheme: str
) -> Service:
    directory = data_dir / name
    settings = {
        "ERUCA_NAMESRV_HOST": host,
        "ERUCA_NAMESRV_PORT": str(port),
        "ERUCA_NAMESRV_KV_FILE": str(directory / "kv.json"),
        **expected,
    }
    return Service(name, NAMESRV_MODULE, host, port, directory, settings, scheme=scheme)


def _broker(
    broker: str,
    replica_id: int | None,
    host: str,
    port: int,
    data_dir: Path,
    *,
    namesrv_urls: str,
    controller_urls: str,
    scheme: str,
) -> Service:
    """Return a broker's process; *replica_id* None: it is the only one."""
    # The first replica has the directory of a broker without replicas, and keeps its messages.
    name = broker if replica_id is None else replica_name(broker, replica_id)
    directory = data_dir / (broker if replica_id == 1 else name)
    settings = {
        "ERUCA_BROKER_NAME": broker,
        "ERUCA_BROKER_HOST": host,
        "ERUCA_BROKER_PORT": str(port),
        "ERUCA_BROKER_STORE_DIR": str(directory),
        "ERUCA_BROKER_NAMESRV_URLS": namesrv_urls,
        "ERUCA_BROKER_ADVERTISED_URL": local_url(host, port, scheme),
    }
    if replica_id is not None:
        settings["ERUCA_BROKER_REPLICA_ID"] = str(replica_id)
        settings["ERUCA_BROKER_CONTROLLER_URLS"] = controller_urls
    return Service(
        *(name, BROKER_MODULE, host, port, directory, settings), broker_name=broker, scheme=scheme
    )


def _txn_checker(
    name: str, port: int, data_dir: Path, namesrv_urls: str, environment: Mapping[str, str]
) -> Service:
    host = bound_host(environment, "ERUCA_TXN_CHECKER_HOST")
    directory = data_dir / POSTGRES_DIRECTORY
    settings = {
        "ERUCA_TXN_CHECKER_NAME": name,
        "ERUCA_TXN_CHECKER_HOST": host,
        "ERUCA_TXN_CHECKER_PORT": str(port),
        "ERUCA_TXN_CHECKER_NAMESRV_URLS": namesrv_urls,
        # Producers of a local cluster run on this machine, and so do their webhooks.
        "ERUCA_TXN_CHECKER_WEBHOOK_REACH": environment.get(
            "ERUCA_TXN_CHECKER_WEBHOOK_REACH", "machine"
        ),
        "ERUCA_TXN_CHECKER_POSTGRES_DIR": str(directory),
    }
    is_embedded = not environment.get("DATABASE_URL")
    scheme = scheme_of(environment, TXN_CHECKER_MODULE)
    return Service(
        name, TXN_CHECKER_MODULE, host, port, directory, settings, is_embedded, scheme=scheme
    )


def _query(
    name: str, port: int, data_dir: Path, namesrv_urls: str, environment: Mapping[str, str]
) -> Service:
    host = bound_host(environment, "ERUCA_QUERY_HOST")
    directory = data_dir / POSTGRES_DIRECTORY
    settings = {
        "ERUCA_QUERY_NAME": name,
        "ERUCA_QUERY_HOST": host,
        "ERUCA_QUERY_PORT": str(port),
        "ERUCA_QUERY_NAMESRV_URLS": namesrv_urls,
        "ERUCA_QUERY_POSTGRES_DIR": str(directory),
    }
    is_embedded = not environment.get("DATABASE_URL")
    scheme = scheme_of(environment, QUERY_MODULE)
    return Service(name, QUERY_MODULE, host, port, directory, settings, is_embedded, scheme=scheme)


def _controller(
    name: str, port: int, data_dir: Path, namesrv_urls: str, environment: Mapping[str, str]
) -> Service:
    host = bound_host(environment, "ERUCA_CONTROLLER_HOST")
    store = environment.get("ERUCA_CONTROLLER_STORE", "postgres")
    directory = data_dir / (CONTROLLER_DIRECTORY if store == "file" else POSTGRES_DIRECTORY)
    is_embedded = store == "postgres" and not environment.get("DATABASE_URL")
    settings = {
        "ERUCA_CONTROLLER_STORE": store,
        "ERUCA_CONTROLLER_HOST": host,
        "ERUCA_CONTROLLER_PORT": str(port),
        "ERUCA_CONTROLLER_NAMESRV_URLS": namesrv_urls,
        "ERUCA_CONTROLLER_POSTGRES_DIR": str(data_dir / POSTGRES_DIRECTORY),
        "ERUCA_CONTROLLER_FILE": str(data_dir / CONTROLLER_DIRECTORY / "broker-groups.json"),
    }
    has_directory = is_embedded or store == "file"
    scheme = scheme_of(environment, CONTROLLER_MODULE)
    return Service(
        name, CONTROLLER_MODULE, host, port, directory, settings, has_directory, scheme=scheme
    )


def _console(
    name: str, port: int, data_dir: Path, namesrv_urls: str, environment: Mapping[str, str]
) -> Service:
    host = bound_host(environment, "ERUCA_CONSOLE_HOST")
    settings = {
        "ERUCA_CONSOLE_HOST": host,
        "ERUCA_CONSOLE_PORT": str(port),
        "ERUCA_CONSOLE_NAMESRV_URLS": namesrv_urls,
        # It calls as the people who look at its pages, never as who started the cluster.
        **dict.fromkeys(PERSONAL, ""),
    }
    directory = data_dir / name  # which it does not need
    scheme = scheme_of(environment, CONSOLE_MODULE)
    return Service(
        *(name, CONSOLE_MODULE, host, port, directory, settings),
        has_directory=False,
        scheme=scheme,
    )


def _explored(plan: ClusterPlan, environment: Mapping[str, str]) -> ClusterPlan:
    """Return *plan* with services that the query services' docs explorer may call."""
    origins = [
        origin
        for service in plan.queries
        for origin in (service.url, f"{service.scheme}://localhost:{service.port}")
    ]

    def explored(service: Service) -> Service:
        variable = f"{service.module.upper()}_EXPLORER_ORIGINS"
        more = environment.get(variable)
        settings = {variable: ";".join([*origins, *([more] if more else [])])}
        return replace(service, settings={**service.settings, **settings})

    return ClusterPlan(
        namesrvs=tuple(map(explored, plan.namesrvs)),
        brokers=tuple(map(explored, plan.brokers)),
        txn_checkers=tuple(map(explored, plan.txn_checkers)),
        queries=plan.queries,
        controllers=tuple(map(explored, plan.controllers)),
        consoles=plan.consoles,
    )
