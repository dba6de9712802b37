"""Finding the instances of a service, where the program does not say where they are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from eruca.aio.broker_api import parsed
from eruca.aio.transport import path_segment, problem_error
from eruca.contract.errors import NoRouteError
from eruca.contract.models import KvNamespace

if TYPE_CHECKING:
    from eruca.aio.name_servers import NameServers
    from eruca.core.services import Service


async def found_instances(
    service: Service, name_servers: NameServers, *, timeout: float
) -> list[str]:
    """Return the URLs that the name servers tell, in any order: clients share the instances.

    Raises:
        NoRouteError: They know of none.
        NameServersUnreachableError: No name server answered.
    """
    target = f"/v1/kv/{path_segment(service.namespace)}"
    answer = await name_servers.request("GET", target, timeout=timeout)
    if answer.status >= 300:
        raise problem_error(answer, f"GET {target}")
    urls = service.told(parsed(KvNamespace, answer, target).entries)
    if not urls:
        raise NoRouteError(
            f"no {service.what} is known to {name_servers.current_url}",
            fix=service.how_to_have_one,
        )
    random.shuffle(urls)
    return urls
