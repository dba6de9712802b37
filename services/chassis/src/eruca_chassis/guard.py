"""The guard: whether a request may be made here at all, decided before anything else.

Both ways of a request lead past it. A connection asks it about each head that it parses
(:mod:`.connections.connections`), the application about each request that comes to it
(:mod:`.app`). The decision depends on the head alone. So a head that is known
(:mod:`.connections.known_heads`) has passed, and is not looked at again.

In this order it decides:

1. whether the request is for this service, by its ``Host`` (:mod:`.hosts`);
2. whether a page of another site may make it (:mod:`.cross_origin`);
3. whether its path and query mean something (:mod:`.requests.targets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eruca_chassis.cross_origin import CrossOrigin
from eruca_chassis.hosts import AllowedHosts
from eruca_chassis.requests.targets import check_path, check_query


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks that a service makes of every request; without arguments, the strictest."""

    hosts: AllowedHosts = field(default_factory=AllowedHosts)
    cross_origin: CrossOrigin = field(default_factory=CrossOrigin)

    def check(
        self,
        method: str,
        path: bytes,
        query: bytes,
        http_version: str,
        headers: Mapping[bytes, bytes],
    ) -> None:
        """Refuse a request that may not be made here.

        Args:
            method: GET, POST ….
            path: As it came.
            query: As it came, without the question mark.
            http_version: ``1.1`` or ``1.0``.
            headers: Names in lower case; several of one name joined by commas.

        Raises:
            RequestError: It does not say properly which host it is for, or its path or query is
                not escaped as a URL is.
            UnknownHostError: It is for another host.
            CrossSiteError: A foreign site's page would change something by it.
        """
        self.hosts.check(headers.get(b"host"), http_version)
        self.cross_origin.check(method, headers)
        check_path(path)
        check_query(query)
