"""Select a transaction checker: all are equivalent, so the client uses one while it answers.

If the program does not name the checkers, the name servers' key-value table does. It is read at the
first use, and again when no known checker has answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eruca.aio.cluster.instances import found_instances
from eruca.core.routing.services import TXN_CHECKER

if TYPE_CHECKING:
    from eruca.aio.cluster.name_servers import NameServers


class Checkers:
    """The transaction checkers of one cluster.

    Args:
        name_servers: The client's.
        urls: The checkers that the program names; empty: the name servers know them.
        timeout: Seconds for a request to the name servers.
    """

    def __init__(self, name_servers: NameServers, urls: Sequence[str], timeout: float) -> None:
        self._name_servers = name_servers
        self._given = urls
        self._timeout = timeout
        self._left: list[str] = []  # those that have not failed; the first is in use

    async def url(self) -> str:
        """Return the URL of the current checker.

        Raises:
            NoRouteError: No checker is known.
            NameServersUnreachableError: No name server answered.
        """
        if not self._left:
            self._left = self._shuffled() or await found_instances(
                TXN_CHECKER, self._name_servers, timeout=self._timeout
            )
        return self._left[0]

    def turn_away(self, url: str) -> bool:
        """Stop using *url*, which has failed; return whether another checker is known."""
        if url in self._left:
            self._left.remove(url)
        return bool(self._left)

    def _shuffled(self) -> list[str]:
        return random.sample(self._given, len(self._given))  # to share the load
