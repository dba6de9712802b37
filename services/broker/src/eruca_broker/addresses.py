"""Which address goes into records, and which URL clients are told."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from eruca.contract.records import Host
from eruca_broker.settings import BrokerSettings, advertised_urls
from eruca_chassis.start import StartError


def store_host_of(settings: BrokerSettings, port: int) -> Host:
    """Return the address and port this broker writes into its records.

    Taken from ``store_ip``, else from the advertised URL or the host where that is one machine's
    address, else the machine's own.

    Raises:
        StartError: ``store_ip`` is no IP address.
    """
    if settings.store_ip is not None:
        try:
            return Host.parse(settings.store_ip, port)
        except ValueError as error:
            raise StartError(
                f"ERUCA_BROKER_STORE_IP={settings.store_ip} is no IP address"
            ) from error
    names = [settings.host, socket.gethostname()]
    if settings.advertised_url is not None:
        default = advertised_urls(settings.advertised_url)["default"]
        names.insert(0, urlsplit(default).hostname or "")
    for name in names:
        address = _address_of(name)
        if address is not None:
            return Host(address, port)
    return Host.parse("127.0.0.1", port)


def urls_of(settings: BrokerSettings, store_host: Host) -> dict[str, str]:
    """Return where clients reach this broker, by network."""
    if settings.advertised_url is not None:
        return advertised_urls(settings.advertised_url)
    ip = f"[{store_host.ip}]" if store_host.is_v6 else store_host.ip
    return {"default": f"http://{ip}:{store_host.port}"}


def _address_of(name: str) -> bytes | None:
    """Return the first address of a host name or IP address; None for none that says where."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for what cannot be a name
        return None
    # IPv4 first: RocketMQ's tools read it more easily, and most records are it.
    for _, _, _, _, place in sorted(found, key=lambda entry: entry[0] != socket.AF_INET):
        address = ip_address(str(place[0]).partition("%")[0])
        if not address.is_unspecified:
            return address.packed
    return None
