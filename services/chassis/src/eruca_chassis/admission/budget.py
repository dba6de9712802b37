"""A budget: a limit on a resource in use, named after its setting.

A request takes :data:`RESERVE_SIZE` before its body arrives, and then the size that has arrived. So
a client that announces much and sends little holds little. A take that does not fit is refused;
nothing is queued.

One client may hold only its share, so that it cannot lock out all others. A client is an IPv4
address or an IPv6 network of 64 bits, because its owner may use any address in it. All clients of a
proxy count as one.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

from eruca.contract.errors import OverloadedError
from eruca_chassis.admission.gate import Quota

RETRY_AFTER_SECONDS: Final = 1.0  # about the time in which a request in progress ends
RESERVE_SIZE: Final = 4 * 1024  # bytes; about the cost of a request without a large body
_FULL_FRACTION: Final = 64  # full at less than 1/64 free: a large request no longer fits
_INTERFACE_BITS: Final = 64  # of an IPv6 address


class Limited(Protocol):
    """A resource of which a limited amount may be in use at once."""

    @property
    def name(self) -> str:
        """The name of the setting that is its limit."""
        ...

    @property
    def maximum(self) -> int:
        """The limit."""
        ...

    def take(self, amount: int, client: str) -> None:
        """Take *amount* for *client*; raise OverloadedError if it does not fit."""
        ...

    def give(self, amount: int, client: str) -> None:
        """Give back *amount*, taken for *client*."""
        ...


class Budget:
    """A counter with a limit; every take is given back exactly once.

    Args:
        name: The name of the setting that is its limit.
        maximum: The limit.
        client_max: Maximum that one client may hold; by default all.
    """

    def __init__(self, name: str, maximum: int, *, client_max: int | None = None) -> None:
        self.name = name
        self.maximum = maximum
        self.client_max = maximum if client_max is None else min(client_max, maximum)
        self.used = 0
        self.refused = 0  # refused takes since the start
        self._used_by: dict[str, int] = {}  # only clients that hold something

    def exhaustion(self) -> OverloadedError | None:
        """Return the error that requests get because the budget is full; None while it is not."""
        if self.maximum - self.used >= self.maximum // _FULL_FRACTION:
            return None
        return OverloadedError(
            f"{self.name} is exhausted: {self.used} of {self.maximum} are in use",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )

    def take(self, amount: int, client: str = "") -> None:
        """Take *amount* for *client*.

        Raises:
            OverloadedError: The amount does not fit; nothing was taken.
        """
        if self.used + amount > self.maximum:
            raise self._refusal(f"{self.used} of {self.maximum} are in use", amount)
        used = self._used_by.get(client, 0)
        if used + amount > self.client_max:
            raise self._refusal(
                f"this client's requests use {used} of its share of {self.client_max}", amount
            )
        self._used_by[client] = used + amount
        self.used += amount

    def try_take(self, amount: int, client: str) -> bool:
        """Take *amount* for *client* if it fits; return whether it does. Nothing is refused."""
        used = self._used_by.get(client, 0) + amount
        if used > self.client_max or self.used + amount > self.maximum:
            return False
        self._used_by[client] = used
        self.used += amount
        return True

    def give(self, amount: int, client: str = "") -> None:
        """Give back *amount*, taken for *client*."""
        left = self._used_by[client] - amount
        assert left >= 0
        if left:
            self._used_by[client] = left
        else:
            del self._used_by[client]
        self.used -= amount
        assert self.used >= 0

    def _refusal(self, why: str, amount: int) -> OverloadedError:
        self.refused += 1
        return OverloadedError(
            f"{self.name}: {why}, {amount} more do not fit",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )


def take_shared(limited: Limited, amount: int, client: str, quota: Quota | None) -> None:
    """Take *amount* of a budget for *client*, within the share that its quota sets.

    Raises:
        OverloadedError: The amount does not fit, or exceeds the share; nothing was taken.
    """
    if quota is not None:
        quota.hold(limited.name, limited.maximum, amount)
    try:
        limited.take(amount, client)
    except OverloadedError:
        if quota is not None:
            quota.give(limited.name, amount)
        raise


def give_shared(limited: Limited, amount: int, client: str, quota: Quota | None) -> None:
    """Give back *amount*, taken by :func:`take_shared` with the same arguments."""
    limited.give(amount, client)
    if quota is not None:
        quota.give(limited.name, amount)


def client_max_of(maximum: int, share: float, largest: int) -> int:
    """Return the maximum that one client may hold of a budget.

    Args:
        maximum: The budget's limit.
        share: The client's share; above 0, at most 1.
        largest: Size of the largest request; a client may always send that.
    """
    return max(int(maximum * share), largest + RESERVE_SIZE)


def client_of(peer: tuple[str, int] | None) -> str:
    """Return the client of a *peer* (address and port), for budgets; empty if unknown."""
    return "" if peer is None else _client_at(peer[0])


@lru_cache(maxsize=4096)
def _client_at(host: str) -> str:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        network = int(address) >> _INTERFACE_BITS << _INTERFACE_BITS
        return f"{IPv6Address(network)}/{_INTERFACE_BITS}"
    return str(address)
