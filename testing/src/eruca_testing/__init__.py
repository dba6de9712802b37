"""Test programs that use Eruca: a broker in memory, a real cluster, and fixtures for both.

::

    def test_an_order_is_announced(eruca_broker, eruca_client):
        place_order(eruca_client, 17)
        assert [message.text() for message in eruca_broker.messages("orders")] == ["order 17"]

pytest loads :mod:`.plugin` in every run where this package is installed. So importing the package
only defines names; each is loaded when it is first used. Only the project's tests import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eruca_testing.broker import InMemoryBroker as InMemoryBroker
    from eruca_testing.cluster import SMALL_STORE as SMALL_STORE
    from eruca_testing.cluster import ClusterOptions as ClusterOptions
    from eruca_testing.cluster import RunningCluster as RunningCluster

_HOMES: Final = {
    "ClusterOptions": "eruca_testing.cluster",
    "InMemoryBroker": "eruca_testing.broker",
    "RunningCluster": "eruca_testing.cluster",
    "SMALL_STORE": "eruca_testing.cluster",
}

__all__ = ["SMALL_STORE", "ClusterOptions", "InMemoryBroker", "RunningCluster"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
