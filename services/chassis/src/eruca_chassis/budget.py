"""A budget: how much of something may be in use at once, under the name of the setting it obeys.

A request takes :data:`RESERVE_SIZE` before its body comes and then what has come: a client that
announces much and sends little holds little. What does not fit is refused; nothing queues here.

One client may hold its share and no more, so that it cannot lock everybody else out. A client is
an IPv4 address or, as its owner may use any address in it, an IPv6 network of 64 bits. All clients
of a proxy are one.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from eruca.contract.errors import OverloadedError

RETRY_AFTER_SECONDS: Final = 1.0  # a request in progress ends within about this time
RESERVE_SIZE: Final = 4 * 1024  # bytes; about what a request costs beside a large body
_FULL_FRACTION: Final = 64  # 4 MiB of 256 MiB: a large request fits no more
_INTERFACE_BITS: Final = 64  # of an IPv6 address


class Budget:
    """A counter with a limit; every take is given back exactly once.

    Args:
        name: Of the setting that is its limit.
        maximum: The limit.
        client_max: As much of it as one client may hold; by default all.
    """

    def __init__(self, name: str, maximum: int, *, client_max: int | None = None) -> None:
        self.name = name
        self.maximum = maximum
        self.client_max = maximum if client_max is None else min(client_max, maximum)
        self.used = 0
        self.refused = 0  # takes that did not fit, since the start
        self._used_by: dict[str, int] = {}  # clients that hold anything

    def exhaustion(self) -> OverloadedError | None:
        """Return why requests are refused, where so little is left that they are; else None."""
        if self.maximum - self.used >= self.maximum // _FULL_FRACTION:
            return None
        return OverloadedError(
            f"{self.name} is used up: {self.used} of {self.maximum} are in use",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )

    def take(self, amount: int, client: str = "") -> None:
        """Take *amount* for *client*.

        Raises:
            OverloadedError: It does not fit; nothing was taken.
        """
        if self.used + amount > self.maximum:
            raise self._refusal(f"{self.used} of {self.maximum} are in use", amount)
        used = self._used_by.get(client, 0)
        if used + amount > self.client_max:
            raise self._refusal(
                f"this client's requests use {used} of the {self.client_max} that one may", amount
            )
        self._used_by[client] = used + amount
        self.used += amount

    def give(self, amount: int, client: str = "") -> None:
        """Give *amount* back that was taken for *client*."""
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


def client_max_of(maximum: int, share: float, largest: int) -> int:
    """Return what one client may hold of a budget, if it is *share* of it.

    Args:
        maximum: The budget's.
        share: Above 0; at most 1.
        largest: What the largest request takes; a client may send that.
    """
    return max(int(maximum * share), largest + RESERVE_SIZE)


def client_of(peer: tuple[str, int] | None) -> str:
    """Return which client a *peer*'s address and port belong to; None: nobody knows."""
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
