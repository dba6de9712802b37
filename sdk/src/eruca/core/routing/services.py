"""Services that a client is told of by the name servers, unless somebody names them to it.

An instance puts its URL into the name servers' key-value table, in a namespace of its kind's, under
its own name, and does so again now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from eruca.contract.errors import ValidationError
from eruca.contract.names import CHECKERS_NAMESPACE, QUERY_SERVICES_NAMESPACE
from eruca.core.client_settings import checked_urls


@dataclass(frozen=True, slots=True)
class Service:
    """A kind of service, of which any instance will do."""

    what: str  # for errors
    module: str  # starts one
    variable: str  # of the environment: where they are, parted by ";"
    namespace: str  # where they tell themselves
    such_as: str  # a URL, for errors

    @property
    def how_to_have_one(self) -> str:
        """The fix where there is none, or none answers."""
        return f"start one: python -m {self.module}; or set {self.variable} to one that runs"

    def given(
        self,
        environment: Mapping[str, str],
        urls: str | Iterable[str] | None = None,
        source: str = "urls",
    ) -> tuple[str, ...]:
        """Return where they are: as a program says, in *source*, else the environment; or nothing.

        Raises:
            ValidationError: What is said is no URL.
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
                continue  # somebody else's entry is no reason not to find the others
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
