"""Services that a client finds through the name servers, unless the program gives their URLs.

An instance writes its URL into the name servers' key-value table, in the namespace of its kind,
under its own name. It repeats this from time to time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from eruca.contract.errors import ValidationError
from eruca.contract.names import (
    CHECKERS_NAMESPACE,
    CONTROLLERS_NAMESPACE,
    QUERY_SERVICES_NAMESPACE,
)
from eruca.core.client_settings import checked_urls


@dataclass(frozen=True, slots=True)
class Service:
    """A kind of service; all of its instances are equivalent."""

    what: str  # for errors
    module: str  # the module that starts one
    variable: str  # the environment variable with their URLs, separated by ";"
    namespace: str  # the namespace in which they register; empty: they do not
    such_as: str  # a URL, for errors

    @property
    def how_to_have_one(self) -> str:
        """The fix if none is known, or none answers."""
        return f"start one: python -m {self.module}; or set {self.variable} to one that runs"

    def given(
        self,
        environment: Mapping[str, str],
        urls: str | Iterable[str] | None = None,
        source: str = "urls",
    ) -> tuple[str, ...]:
        """Return the URLs of the program (*source* in errors), else of the environment; or none.

        Raises:
            ValidationError: A value is not a URL.
        """
        if urls is None:
            urls, source = environment.get(self.variable) or None, self.variable
        if urls is None:
            return ()
        return checked_urls(urls, source, f"a {self.what}", such_as=self.such_as)

    def told(self, entries: Mapping[str, str]) -> list[str]:
        """Return the URLs among a namespace's entries, in the order of the instances' names."""
        urls: list[str] = []
        for name, url in sorted(entries.items()):
            try:
                urls += checked_urls(url, name, f"a {self.what}", such_as=self.such_as)
            except ValidationError:
                continue  # skip an invalid entry of another program
        return urls


QUERY_SERVICE: Final = Service(
    "query service",
    "eruca_query",
    "ERUCA_QUERY_URLS",
    QUERY_SERVICES_NAMESPACE,
    "http://127.0.0.1:10931",
)
TXN_CHECKER: Final = Service(
    "transaction checker",
    "eruca_txn_checker",
    "ERUCA_TXN_CHECKER_URLS",
    CHECKERS_NAMESPACE,
    "http://127.0.0.1:10921",
)
CONTROLLER: Final = Service(
    "controller",
    "eruca_controller",
    "ERUCA_CONTROLLER_URLS",
    CONTROLLERS_NAMESPACE,
    "http://127.0.0.1:9878",
)
CONSOLE: Final = Service(
    "console",
    "eruca_console",
    "ERUCA_CONSOLE_URLS",
    "",  # it has no credentials of its own to register with
    "http://127.0.0.1:10941",
)
