"""Masters that replicas have named: where a request goes that only a master answers.

A replica that is not the master answers such a request with a redirect (``not-master``), which
names the master and its epoch. The book keeps that, so the next request goes there at once, until a
route shows the same master. The rules:

1. A redirect counts only if its epoch is not smaller than any that routes or other redirects have
   named for this broker. A replica that was cut off may still believe in a former master.
2. A later epoch replaces an earlier one, and takes back a redirect in the opposite direction.
3. A route that shows a master of at least that epoch ends the redirect. From then on a request to a
   standby's URL means that standby.
4. A client with credentials follows a redirect only to a URL that a name server has named for the
   same broker, last. A server's word alone must not lead its credentials to another host.

Pure, and not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from eruca.contract.errors import NotMasterError
from eruca.contract.fields import MASTER_ID, STANDALONE_EPOCH
from eruca.core.routing.route_table import DEFAULT_NETWORK, address_for

URL_COUNT_MAX: Final = 4_096  # URLs of replicas; bounds the memory, whatever replicas answer


class Move(NamedTuple):
    """The master that a replica has named."""

    epoch: int
    url: str


class MasterBook:
    """The redirects of one client.

    Args:
        network: The network whose broker addresses this client uses.
        is_wary: Whether redirects count only to URLs that name servers have named (rule 4).
    """

    def __init__(self, network: str = DEFAULT_NETWORK, *, is_wary: bool = False) -> None:
        self._network = network
        self._is_wary = is_wary
        # By the URL of a replica: those of its broker, as a name server named them last.
        self._siblings: dict[str, frozenset[str]] = {}
        self._moves: dict[str, Move] = {}  # by the URL that redirects
        self._names: dict[str, str] = {}  # broker names by the URLs of their replicas
        self._epochs: dict[str, int] = {}  # the latest by broker name
        self._masters: dict[str, str] = {}  # the latest URLs by broker name

    def copy(self) -> MasterBook:
        """Return a copy for another thread; it may be made by that thread."""
        book = MasterBook(self._network, is_wary=self._is_wary)
        book._siblings = self._siblings.copy()
        book._moves = self._moves.copy()
        book._names = self._names.copy()
        book._epochs = self._epochs.copy()
        book._masters = self._masters.copy()
        return book

    def place(self, url: str) -> str:
        """Return the URL to which a request for the master at *url* goes."""
        move = self._moves.get(url)
        return url if move is None else move.url

    def successor(self, url: str) -> str:
        """Return the latest known master of the broker that has or had *url*."""
        return self._masters.get(self._names.get(url, ""), self.place(url))

    def replicas(self, url: str) -> list[str]:
        """Return *url* and those that name servers named with it last; empty without replicas."""
        siblings = self._siblings.get(url)
        return [] if siblings is None else [url, *sorted(siblings - {url})]

    def redirected(self, url: str, error: NotMasterError) -> str | None:
        """Return the master that the replica at *url* names; None if its word does not count."""
        if error.epoch is None or not error.master_urls:
            return None
        name = self._names.get(url)
        target = address_for(error.master_urls, self._network)
        if self._is_wary and target not in self._siblings.get(url, ()):
            return None
        known = self._epochs.get(name, 0) if name is not None else 0
        if (before := self._moves.get(url)) is not None:
            known = max(known, before.epoch)
        move = Move(error.epoch, target)
        onward = self._moves.get(move.url)
        while onward is not None and onward.epoch > move.epoch:
            move = onward  # the named master has named a later one since
            onward = self._moves.get(move.url)
        if error.epoch < known or move.url == url:
            return None
        self._make_room()
        self._moves[url] = move
        self._moves.pop(move.url, None)
        if name is not None:
            self._note(name, move.epoch, move.url)
        return move.url

    def forget(self, url: str) -> None:
        """Drop the redirect from *url*: the server that it names is unreachable."""
        self._moves.pop(url, None)

    def learn(self, broker_name: str, epoch: int, urls: Mapping[int, Mapping[str, str]]) -> None:
        """Take in what a name server says of a broker: its replicas' URLs, by broker id."""
        if epoch == STANDALONE_EPOCH:
            return
        by_id = {i: address_for(its, self._network) for i, its in urls.items() if its}
        self._make_room(by_id.values())
        self._names |= dict.fromkeys(by_id.values(), broker_name)
        self._siblings |= dict.fromkeys(by_id.values(), frozenset(by_id.values()))
        self._epochs[broker_name] = max(self._epochs.get(broker_name, 0), epoch)
        if MASTER_ID not in by_id:
            return
        self._note(broker_name, epoch, by_id[MASTER_ID])
        for url, name in self._names.items():
            move = self._moves.get(url)
            if name == broker_name and move is not None and move.epoch <= epoch:
                del self._moves[url]

    def _note(self, broker_name: str, epoch: int, master_url: str) -> None:
        if epoch >= self._epochs.get(broker_name, 0):
            self._epochs[broker_name] = epoch
            self._names[master_url] = broker_name
            self._masters[broker_name] = master_url

    def _make_room(self, urls: Iterable[str] = ()) -> None:
        """Begin with an empty book if it is full: the next routes and redirects fill it again."""
        if len(self._names.keys() | self._moves.keys() | set(urls)) >= URL_COUNT_MAX:
            for table in (
                *(self._moves, self._names, self._epochs, self._masters),
                self._siblings,
            ):
                table.clear()
