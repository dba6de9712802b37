"""Finding a transaction checker: any of them will do, so one is asked, and kept while it answers.

Where the program does not name them, the name servers' key-value table does: looked at first when
one is needed, and again when none of those known has answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from eruca.aio.broker_api import parsed
from eruca.aio.transport import path_segment, problem_error
from eruca.contract.errors import NoRouteError, ValidationError
from eruca.contract.models import KvNamespace
from eruca.contract.transactions import CHECKERS_NAMESPACE
from eruca.core.client_settings import checked_urls
from eruca.core.transaction_settings import CHECKER_URLS_VARIABLE

if TYPE_CHECKING:
    from eruca.aio.name_servers import NameServers

_TARGET: Final = f"/v1/kv/{path_segment(CHECKERS_NAMESPACE)}"
_SUCH_AS: Final = "http://127.0.0.1:10921"


class Checkers:
    """The transaction checkers of one cluster.

    Args:
        name_servers: The client's.
        urls: Those that the program names; none: name servers tell.
        timeout: Seconds to ask name servers.
    """

    def __init__(self, name_servers: NameServers, urls: Sequence[str], timeout: float) -> None:
        self._name_servers = name_servers
        self._given = urls
        self._timeout = timeout
        self._left: list[str] = []  # not turned away from; the first is the one in use

    async def url(self) -> str:
        """Return the one in use.

        Raises:
            NoRouteError: None is known.
            NameServersUnreachableError: No name server answered.
        """
        if not self._left:
            found = list(self._given) or await self._told()
            random.shuffle(found)  # producers share the checkers
            self._left = found
        if not self._left:
            raise NoRouteError(
                "no transaction checker is known to "
                f"{self._name_servers.current_url}: nobody asks about undecided transactions",
                fix=f"start one (eruca_txn_checker), or set {CHECKER_URLS_VARIABLE}",
            )
        return self._left[0]

    def turn_away(self, url: str) -> bool:
        """Take another one than *url*, which has failed; tell whether one is at hand."""
        if url in self._left:
            self._left.remove(url)
        return bool(self._left)

    async def _told(self) -> list[str]:
        answer = await self._name_servers.request("GET", _TARGET, timeout=self._timeout)
        if answer.status >= 300:
            raise problem_error(answer, f"GET {_TARGET}")
        entries = parsed(KvNamespace, answer, _TARGET).entries
        urls: list[str] = []
        for name, url in sorted(entries.items()):
            try:
                urls += checked_urls(url, name, "a transaction checker", such_as=_SUCH_AS)
            except ValidationError:
                continue  # somebody else's entry is no reason not to find the others
        return urls
