"""The policy in etcd: a transaction compares the ``mod_revision`` of the newest version.

Keys, below the prefix that is set::

    policy                        the newest version
    policy-version                its version alone, which is looked at often
    policies/NUMBER               each version; the number has 20 digits, so keys sort as numbers
"""

from __future__ import annotations

from eruca_controller.core.policies import PolicyRow
from eruca_controller.store.etcd import NUMBER_DIGITS, encoded, end_of, values_of
from eruca_controller.store.etcd_client import EtcdClient


class EtcdPolicies:
    """The store in etcd.

    Args:
        client: Asks the members.
        prefix: Beginning of all keys.
    """

    def __init__(self, client: EtcdClient, *, prefix: str) -> None:
        self._client = client
        self._newest = encoded(f"{prefix}policy")
        self._version = encoded(f"{prefix}policy-version")
        self._every = f"{prefix}policies/"

    async def newest(self) -> PolicyRow | None:
        """Return the newest version; None: there has never been one."""
        row, _ = await self._read()
        return row

    async def newest_version(self) -> str | None:
        """Return the text that identifies the newest version; None: there is none."""
        values = values_of(await self._client.ask("/v3/kv/range", {"key": self._version}))
        return values[0].decode() if values else None

    async def swap(self, expected: str | None, row: PolicyRow) -> bool:
        """Store *row* if the newest version is *expected*; return whether it was."""
        current, revision = await self._read()
        if expected != (None if current is None else current.version):
            return False
        value = encoded(row.to_text())
        answer = await self._client.ask(
            "/v3/kv/txn",
            {
                "compare": [{"target": "MOD", "key": self._newest, "mod_revision": revision}],
                "success": [
                    {"request_put": {"key": self._newest, "value": value}},
                    {"request_put": {"key": self._version, "value": encoded(row.version)}},
                    {"request_put": {"key": self._key(row.number), "value": value}},
                ],
            },
        )
        return bool(answer.get("succeeded"))

    async def history(self, *, before: int | None, count_max: int) -> list[PolicyRow]:
        """Return versions, the newest first; *before* is a number, exclusive."""
        answer = await self._client.ask(
            "/v3/kv/range",
            {
                "key": encoded(self._every),
                "range_end": end_of(self._every) if before is None else self._key(before),
                "limit": count_max,
                "sort_order": "DESCEND",
                "sort_target": "KEY",
            },
        )
        return [PolicyRow.from_text(value) for value in values_of(answer)]

    async def _read(self) -> tuple[PolicyRow | None, int]:
        """Return the newest version and its revision; 0, as etcd compares it, if there is none."""
        answer = await self._client.ask("/v3/kv/range", {"key": self._newest})
        values = values_of(answer)
        if not values:
            return None, 0
        return PolicyRow.from_text(values[0]), int(answer["kvs"][0]["mod_revision"])

    def _key(self, number: int) -> str:
        return encoded(f"{self._every}{number:0{NUMBER_DIGITS}}")
