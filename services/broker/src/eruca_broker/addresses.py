"""Choose the address in records, and the URLs for clients."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from eruca.contract.records import Host
from eruca_broker.settings import BrokerSettings, advertised_urls
from eruca_chassis.sockets.listening import Address, reached_at, url_of
from eruca_chassis.start import StartError


def store_host_of(settings: BrokerSettings, addresses: Sequence[Address]) -> Host:
    """Return the address and port that this broker writes into its records.

    It is ``store_ip``, or else the address of the advertised URL's host if that can be resolved, or
    else one of the *addresses* on which it listens.

    Raises:
        StartError: ``store_ip`` is not an IP address.
    """
    ip, port = reached_at(addresses)
    if settings.store_ip is not None:
        try:
            return Host.parse(settings.store_ip, port)
        except ValueError as error:
            raise StartError(
                f"ERUCA_BROKER_STORE_IP={settings.store_ip} is not an IP address"
            ) from error
    if settings.advertised_url is not None:
        default = advertised_urls(settings.advertised_url)["default"]
        advertised = _address_of(urlsplit(default).hostname or "")
        if advertised is not None:
            return Host(advertised, port)
    return Host.parse(ip.partition("%")[0], port)


def urls_of(settings: BrokerSettings, addresses: Sequence[Address]) -> dict[str, str]:
    """Return this broker's URLs for clients, by network."""
    if settings.advertised_url is not None:
        return advertised_urls(settings.advertised_url)
    return {"default": url_of(reached_at(addresses), settings.scheme)}


def _address_of(name: str) -> bytes | None:
    """Return the first address of a host name or IP address; None if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for invalid host names
        return None
    # IPv4 first: RocketMQ's tools read it more easily, and most records have it.
    for _, _, _, _, place in sorted(found, key=lambda entry: entry[0] != socket.AF_INET):
        address = ip_address(str(place[0]).partition("%")[0])
        if not address.is_unspecified:
            return address.packed
    return None
