"""Rows in Kubernetes: a ConfigMap for each group, compared by its ``resourceVersion``.

A ConfigMap has the current version in ``row``, and the versions before it in ``history``, one on a
line, the oldest first. So both are stored by one request, or neither is. The API server refuses a
replacement whose ``resourceVersion`` is not the current one (409), and a second creation.

A broker name may contain characters that a ConfigMap's name may not. So the name is a hash, and an
annotation has the broker name. Reads give no ``resourceVersion``: then the server reads what every
earlier change has stored.

Source: Kubernetes 1.30, "API Concepts": "Resource versions", "Retrieving large results sets".
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection
from typing import Any, Final

from eruca_controller.core.rows import GroupRow
from eruca_controller.store.kubernetes_client import KubernetesClient

LABEL: Final = "eruca.io/broker-group"
NAME_ANNOTATION: Final = "eruca.io/broker-name"
HISTORY_SIZE_MAX: Final = 512 * 1024  # characters; a ConfigMap may have 1 MiB
READ_COUNT_MAX: Final = 10  # requests at a time
_HASH_SIZE: Final = 32


class KubernetesGroups:
    """The store in ConfigMaps.

    Args:
        client: Asks the API server.
        prefix: Beginning of the ConfigMaps' names.
        history_count_max: Entries of the history that are kept for each group.
    """

    def __init__(self, client: KubernetesClient, *, prefix: str, history_count_max: int) -> None:
        self._client = client
        self._prefix = prefix
        self._history_count_max = history_count_max

    async def read(self, broker_name: str) -> GroupRow | None:
        """Return the current version of a row; None if the name has never been used."""
        found = await self._client.get(self._name_of(broker_name))
        return None if found is None else _row_of(found)

    async def swap(self, expected: str | None, row: GroupRow) -> bool:
        """Store *row* if the current version is *expected*; return whether it was."""
        found = await self._client.get(self._name_of(row.broker_name))
        current = None if found is None else _row_of(found)
        if expected != (None if current is None else current.version):
            return False
        metadata: dict[str, Any] = {
            "name": self._name_of(row.broker_name),
            "labels": {LABEL: self._prefix.rstrip("-.")},
            "annotations": {NAME_ANNOTATION: row.broker_name},
        }
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"row": row.to_text(), "history": ""},
        }
        if found is None:
            return await self._client.create(config_map)
        metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        config_map["data"] = {"row": row.to_text(), "history": self._history_after(found)}
        return await self._client.replace(config_map)

    async def live(self, *, after: str | None, count_max: int) -> list[GroupRow]:
        """Return the groups that exist, in order of their names, from the one behind *after*."""
        rows = [_row_of(found) for found in await self._all()]
        live = [row for row in rows if row.is_live and row.broker_name > (after or "")]
        return sorted(live, key=lambda row: row.broker_name)[:count_max]

    async def history(
        self, broker_name: str, *, before: int | None, count_max: int
    ) -> list[GroupRow]:
        """Return the versions of a row, the newest first; *before* is a number, exclusive."""
        found = await self._client.get(self._name_of(broker_name))
        if found is None:
            return []
        versions = [*map(GroupRow.from_text, _lines_of(found)), _row_of(found)]
        chosen = [row for row in reversed(versions) if before is None or row.number < before]
        return chosen[: min(count_max, self._history_count_max)]

    async def versions(self, broker_names: Collection[str]) -> dict[str, str]:
        """Return the current versions of these rows; a name that was never used is left out."""
        places = asyncio.Semaphore(READ_COUNT_MAX)

        async def read(broker_name: str) -> GroupRow | None:
            async with places:
                return await self.read(broker_name)

        rows = await asyncio.gather(*map(read, broker_names))
        return {row.broker_name: row.version for row in rows if row is not None}

    async def count(self) -> int:
        """Return the number of names that have a row, removed or not."""
        return len(await self._all())

    async def check(self) -> None:
        """Raise ArbiterUnavailableError unless rows can be read."""
        await self._client.list(self._selector, count_max=1)

    @property
    def _selector(self) -> str:
        return f"{LABEL}={self._prefix.rstrip('-.')}"

    async def _all(self) -> list[dict[str, Any]]:
        return await self._client.list(self._selector)

    def _name_of(self, broker_name: str) -> str:
        digest = hashlib.sha256(broker_name.encode()).hexdigest()
        return self._prefix + digest[:_HASH_SIZE]

    def _history_after(self, found: dict[str, Any]) -> str:
        """Return the history once the present version of *found* is replaced."""
        lines = [*_lines_of(found), found["data"]["row"]]
        lines = lines[-(self._history_count_max - 1) :]
        while sum(map(len, lines)) + len(lines) > HISTORY_SIZE_MAX:
            del lines[0]
        return "".join(f"{line}\n" for line in lines)


def _row_of(found: dict[str, Any]) -> GroupRow:
    return GroupRow.from_text(found["data"]["row"])


def _lines_of(found: dict[str, Any]) -> list[str]:
    text: str = found["data"].get("history", "")
    return text.splitlines()
