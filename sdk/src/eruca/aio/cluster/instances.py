"""Finding the instances of a service, where the program does not say where they are.

Any of them will do. One that does not answer, or is starting or stopping, is left for the next one,
and where none is left they are looked for again.
"""

from __future__ import annotations

import os
import random
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
    """Asks whichever instance of a service answers.

    Args:
        service: Which; where its variable of the environment does not name the instances, the name
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
        """Return where those are that have not failed; the first is the one in use.

        Raises:
            NoRouteError: None is known.
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
        self, method: str, target: str, body: BaseModel | None = None
    ) -> tuple[HttpResponse, str]:
        """Return the first answer that one gives, and its URL; raise a refusal."""
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
                    self._context.transport, method, url, target, body, timeout=self._timeout
                )
            except (TransportError, TimeoutExpiredError, NotReadyError) as error:
                failed[url] = error
                if url in self._urls:  # else another question has found it out already
                    self._urls.remove(url)
            else:
                return answer, url


async def found_instances(
    service: Service, name_servers: NameServers, *, timeout: float
) -> list[str]:
    """Return the URLs that the name servers tell, in any order: clients share the instances.

    A name server that knows none may have been away: then the others are asked as well.

    Raises:
        NoRouteError: They know of none.
        NameServerSettlingError: They know of none yet.
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
