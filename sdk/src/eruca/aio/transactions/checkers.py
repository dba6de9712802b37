"""Finding a transaction checker: any of them will do, so one is asked, and kept while it answers.

Where the program does not name them, the name servers' key-value table does: looked at first when
one is needed, and again when none of those known has answered.
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
            self._left = self._shuffled() or await found_instances(
                TXN_CHECKER, self._name_servers, timeout=self._timeout
            )
        return self._left[0]

    def turn_away(self, url: str) -> bool:
        """Take another one than *url*, which has failed; tell whether one is at hand."""
        if url in self._left:
            self._left.remove(url)
        return bool(self._left)

    def _shuffled(self) -> list[str]:
        return random.sample(self._given, len(self._given))  # producers share the checkers
