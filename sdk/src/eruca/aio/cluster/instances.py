"""Find the instances of a service if the program does not name them.

All instances are equivalent. If one does not answer, is starting or is stopping, the client uses
the next one. If none is left, it looks them up again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eruca.aio.cluster.requests import parsed, send_model
from eruca.aio.http.transport import HttpResponse, path_segment, problem_error
from eruca.contract.errors import (
    ErucaError,
    NoRouteError,
    NotReadyError,
    TimeoutExpiredError,
    TransportError,
)
from eruca.contract.routes import KvNamespace

if TYPE_CHECKING:
    from pydantic import BaseModel

    from eruca.aio.cluster.client_context import ClientContext
    from eruca.aio.cluster.name_servers import NameServers
    from eruca.core.routing.services import Service


class Instances:
    """Requests to any instance of a service that answers.

    Args:
        service: The service. If its environment variable does not name the instances, the name
            servers' key-value table does.
        context: The client's.
        timeout: Seconds for an answer.
    """

    def __init__(self, service: Service, context: ClientContext, *, timeout: float) -> None:
        self._service = service
        self._context = context
        self._timeout = timeout
        self._urls: list[str] = []  # those that have not failed; the first is in use

    async def urls(self) -> list[str]:
        """Return the URLs of the instances that have not failed; the first is in use.

        Raises:
            NoRouteError: No instance is known.
        """
        self._context.check_open()
        if not self._urls:
            self._urls = [*self._service.given(os.environ)] or await found_instances(
                self._service,
                self._context.name_servers,
                timeout=self._context.settings.timeout_seconds,
            )
        return [*self._urls]

    async def request(
        self,
        method: str,
        target: str,
        body: BaseModel | None = None,
        *,
        headers: Sequence[tuple[str, str]] = (),
    ) -> tuple[HttpResponse, str]:
        """Return the first answer of an instance, and its URL; raise a refusal."""
        failed: dict[str, ErucaError] = {}
        while True:
            urls = [url for url in await self.urls() if url not in failed]
            if not urls:
                error = failed.popitem()[1]
                error.fix = error.fix or self._service.how_to_have_one
                raise error
            url = urls[0]
            try:
                answer = await send_model(
                    self._context.transport,
                    method,
                    url,
                    target,
                    body,
                    timeout=self._timeout,
                    headers=headers,
                )
            except (TransportError, TimeoutExpiredError, NotReadyError) as error:
                failed[url] = error
                if url in self._urls:  # else another request has already removed it
                    self._urls.remove(url)
            else:
                return answer, url


async def found_instances(
    service: Service, name_servers: NameServers, *, timeout: float
) -> list[str]:
    """Return the URLs that the name servers know, in random order, to share the load.

    A name server that knows no instance may have been away, so the others are asked as well.

    Raises:
        NoRouteError: The name servers know no instance.
        NameServerSettlingError: They know no instance yet.
        NameServersUnreachableError: No name server answered.
    """
    target = f"/v1/kv/{path_segment(service.namespace)}"
    for _ in name_servers.urls:
        answer = await name_servers.request("GET", target, timeout=timeout)
        if answer.status >= 300:
            raise problem_error(answer, f"GET {target}")
        urls = service.told(parsed(KvNamespace, answer, target).entries)
        if urls:
            random.shuffle(urls)
            return urls
        name_servers.rotate()
    raise NoRouteError(
        f"no {service.what} is known to {', '.join(name_servers.urls)}",
        fix=service.how_to_have_one,
    )
