"""Select the services that the docs explorer offers. Pure.

Addresses come from the name servers, where any client may have registered anything, and become
part of the page's content security policy. So any text that is not clearly an address is left out,
and the page says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from eruca.contract.routes import BrokerGroup
from eruca.core.client_settings import NETWORK_DEFAULT
from eruca_chassis.admission.cross_origin import origin_of
from eruca_chassis.explorer.routes import Explored, ExploredServices

EXPLORED_MAX: Final = 200  # services; the policy is one header, of some 30 bytes for each


def services_to_explore(
    *,
    brokers: Iterable[BrokerGroup],
    namesrv_urls: Sequence[str],
    checkers: Mapping[str, str],
    controllers: Mapping[str, str],
    network: str,
    missing: Sequence[str] = (),
) -> ExploredServices:
    """Return brokers, name servers, checkers, controllers and the query service, in this order.

    Args:
        brokers: The living brokers.
        namesrv_urls: The name servers' URLs.
        checkers: The transaction checkers' URLs by name.
        controllers: The controllers' URLs by name.
        network: The network whose URL is taken, if a broker has one for it.
        missing: Sentences about unavailable information.
    """
    found = [
        *_brokers(brokers, network),
        *_numbered("namesrv", namesrv_urls),
        *sorted(checkers.items()),
        *sorted(controllers.items()),
    ]
    services = []
    notes = list(missing)
    for name, url in found[:EXPLORED_MAX]:
        try:
            services.append(Explored(name, origin_of(url)))
        except ValueError:
            notes.append(f"The URL of {name} cannot be called from a page: {url}.")
    if len(found) > EXPLORED_MAX:
        notes.append(f"{len(found) - EXPLORED_MAX} more services are left out.")
    return ExploredServices([*services, Explored("query", "")], " ".join(notes))


def _brokers(groups: Iterable[BrokerGroup], network: str) -> Iterable[tuple[str, str]]:
    for group in sorted(groups, key=lambda group: (group.cluster, group.broker_name)):
        for broker in sorted(group.brokers, key=lambda broker: broker.broker_id):
            urls = broker.urls
            url = urls.get(network) or urls.get(NETWORK_DEFAULT) or min(urls.values())
            is_master = broker.broker_id == 0
            name = group.broker_name if is_master else f"{group.broker_name}/{broker.broker_id}"
            yield name, url


def _numbered(name: str, urls: Sequence[str]) -> list[tuple[str, str]]:
    if len(urls) == 1:
        return [(name, urls[0])]
    return [(f"{name}-{number}", url) for number, url in enumerate(urls, start=1)]
