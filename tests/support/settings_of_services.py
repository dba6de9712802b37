"""The settings of each kind of service, by the module that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eruca_broker.settings import BrokerSettings
from eruca_chassis.running.settings import ServiceSettings
from eruca_console.settings import ConsoleSettings
from eruca_controller.settings import ControllerSettings
from eruca_deploy.plan import (
    BROKER_MODULE,
    CONSOLE_MODULE,
    CONTROLLER_MODULE,
    NAMESRV_MODULE,
    QUERY_MODULE,
    TXN_CHECKER_MODULE,
)
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.settings import QuerySettings
from eruca_txn_checker.settings import TxnCheckerSettings

SETTINGS: Final[Mapping[str, type[ServiceSettings]]] = {
    NAMESRV_MODULE: NamesrvSettings,
    BROKER_MODULE: BrokerSettings,
    TXN_CHECKER_MODULE: TxnCheckerSettings,
    QUERY_MODULE: QuerySettings,
    CONTROLLER_MODULE: ControllerSettings,
    CONSOLE_MODULE: ConsoleSettings,
}

CLIENT_VARIABLES: Final = frozenset(
    {"ERUCA_API_KEY_FILE", "ERUCA_TLS_CA_FILE", "ERUCA_TLS_CERT_FILE", "ERUCA_TLS_KEY_FILE"}
)
"""Variables that every service reads as a client of the others."""


def unknown_settings(module: str, variables: Mapping[str, str]) -> list[str]:
    """Return those of *variables* that a service of *module* would not read, or would refuse."""
    settings = SETTINGS[module]
    known = {*settings.variables().values(), *settings.secret_files().values(), *CLIENT_VARIABLES}
    return sorted(name for name in variables if name not in known)
