"""The guard: decide whether a request may be made here at all, before anything else.

Both paths of a request pass it. A connection asks it about each parsed head
(:mod:`.connections.connections`), and the application about each request that reaches it
(:mod:`.app`). The decision depends only on the head. So a known head
(:mod:`.connections.known_heads`) has passed, and is not checked again.

It decides, in this order:

1. by its ``Host``, whether the request is for this service (:mod:`eruca_chassis.admission.hosts`);
2. whether a page of another site may make it (:mod:`eruca_chassis.admission.cross_origin`);
3. whether its path and query are well-formed (:mod:`.requests.targets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eruca_chassis.admission.cross_origin import CrossOrigin
from eruca_chassis.admission.hosts import AllowedHosts
from eruca_chassis.requests.targets import check_path, check_query


@dataclass(frozen=True, slots=True)
class Guard:
    """The checks of every request; without arguments, the strictest ones."""

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
            path: As sent.
            query: As sent, without the question mark.
            http_version: ``1.1`` or ``1.0``.
            headers: Names in lower case; several with one name joined by commas.

        Raises:
            RequestError: Its Host, path or query is not well-formed.
            UnknownHostError: It is for another host.
            CrossSiteError: It comes from a foreign site's page and could change something.
        """
        self.hosts.check(headers.get(b"host"), http_version)
        self.cross_origin.check(method, headers)
        check_path(path)
        check_query(query)
