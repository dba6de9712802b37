"""The name servers' key-value table: each server has its own, so changes go to all of them.

A server that was away lacks some entries. So does one that keeps its table in memory and was
restarted. If a server lacks an entry, the client reads it from the others.

Source: RocketMQ 5.3, ``KVConfigManager``, ``DefaultMQAdminExt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eruca.aio.cluster.masters import Masters, on_each
from eruca.aio.cluster.requests import checked_request, parsed
from eruca.aio.http.transport import path_segment
from eruca.contract.errors import KeyNotFoundError
from eruca.contract.routes import KvEntry, KvNamespace, KvValue
from eruca.core.checked_names import check_kv_name

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext


class KvTable:
    """The table of one cluster."""

    def __init__(self, context: ClientContext, masters: Masters) -> None:
        self._context = context
        self._masters = masters

    async def get(self, namespace: str, key: str) -> str:
        """Return a value; raises KeyNotFoundError if no name server has the key."""
        target = _target(namespace, key)
        name_servers = self._context.name_servers
        unknown: KeyNotFoundError | None = None
        for _ in name_servers.urls:
            try:
                answer = await self._masters.ask_name_server("GET", target)
            except KeyNotFoundError as error:
                unknown = error
                name_servers.rotate()
            else:
                return parsed(KvEntry, answer, target).value
        assert unknown is not None
        raise unknown

    async def entries(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace from the first name server that has it."""
        target = _target(namespace)
        for _ in self._context.name_servers.urls:
            answer = await self._masters.ask_name_server("GET", target)
            if entries := parsed(KvNamespace, answer, target).entries:
                return entries
            self._context.name_servers.rotate()
        return {}

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Store a value at every name server."""
        target = _target(namespace, key)
        with checked_request():
            body = KvValue(value=value)

        async def put(url: str) -> None:
            await self._masters.send("PUT", url, target, body)

        await on_each(self._urls(), put)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value at every name server; raises KeyNotFoundError if none has the key."""
        target = _target(namespace, key)

        async def delete(url: str) -> KeyNotFoundError | None:
            try:
                await self._masters.send("DELETE", url, target)
            except KeyNotFoundError as error:
                return error
            return None

        outcomes = await on_each(self._urls(), delete)
        unknown = [error for error in outcomes.values() if error is not None]
        if len(unknown) == len(outcomes):
            raise unknown[0]

    def _urls(self) -> dict[str, str]:
        return {url: url for url in self._context.name_servers.urls}


def _target(namespace: str, key: str | None = None) -> str:
    """Return a name server's path for a namespace, or for a key in it."""
    check_kv_name(namespace, "namespace")
    if key is None:
        return f"/v1/kv/{path_segment(namespace)}"
    check_kv_name(key, "key")
    return f"/v1/kv/{path_segment(namespace)}/{path_segment(key)}"
