"""Rows in etcd: a transaction compares the ``mod_revision`` of the row that was read.

Keys, below the prefix that is set::

    groups/NAME                   the current version
    changes/NAME/NUMBER           each version; the number has 20 digits, so keys sort as numbers

All reads are linearizable, which is etcd's default: they see every change that was answered before.

Source: etcd 3.4, ``rpc.proto`` and "gRPC gateway".
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection
from typing import Any, Final

from eruca_controller.core.rows import GroupRow
from eruca_controller.store.etcd_client import EtcdClient

READ_COUNT_MAX: Final = 100  # reads in one transaction; etcd allows 128 operations
NUMBER_DIGITS: Final = 20


class EtcdGroups:
    """The store in etcd.

    Args:
        client: Asks the members.
        prefix: Beginning of all keys.
        history_count_max: Entries of the history that are kept for each group.
    """

    def __init__(self, client: EtcdClient, *, prefix: str, history_count_max: int) -> None:
        self._client = client
        self._groups = f"{prefix}groups/"
        self._changes = f"{prefix}changes/"
        self._history_count_max = history_count_max

    async def read(self, broker_name: str) -> GroupRow | None:
        """Return the current version of a row; None if the name has never been used."""
        row, _ = await self._read(broker_name)
        return row

    async def swap(self, expected: str | None, row: GroupRow) -> bool:
        """Store *row* if the current version is *expected*; return whether it was."""
        current, revision = await self._read(row.broker_name)
        if expected != (None if current is None else current.version):
            return False
        key, value = encoded(self._groups + row.broker_name), encoded(row.to_text())
        oldest = max(row.number - self._history_count_max + 1, 1)
        first, last = (self._change_key(row.broker_name, number) for number in (0, oldest))
        answer = await self._client.ask(
            "/v3/kv/txn",
            {
                "compare": [{"target": "MOD", "key": key, "mod_revision": revision}],
                "success": [
                    {"request_put": {"key": key, "value": value}},
                    {
                        "request_put": {
                            "key": self._change_key(row.broker_name, row.number),
                            "value": value,
                        }
                    },
                    {"request_delete_range": {"key": first, "range_end": last}},
                ],
            },
        )
        return bool(answer.get("succeeded"))

    async def live(self, *, after: str | None, count_max: int) -> list[GroupRow]:
        """Return the groups that exist, in order of their names, from the one behind *after*."""
        rows: list[GroupRow] = []
        first = self._groups + (f"{after}\0" if after else "")
        while len(rows) < count_max:
            page = await self._range(first, self._groups, count_max)
            rows += [row for row in page if row.is_live]
            if len(page) < count_max:
                break
            first = f"{self._groups}{page[-1].broker_name}\0"
        return rows[:count_max]

    async def history(
        self, broker_name: str, *, before: int | None, count_max: int
    ) -> list[GroupRow]:
        """Return the versions of a row, the newest first; *before* is a number, exclusive."""
        every = f"{self._changes}{broker_name}/"
        last = end_of(every) if before is None else self._change_key(broker_name, before)
        answer = await self._client.ask(
            "/v3/kv/range",
            {
                "key": encoded(every),
                "range_end": last,
                "limit": count_max,
                "sort_order": "DESCEND",
                "sort_target": "KEY",
            },
        )
        return _rows_of(answer)

    async def versions(self, broker_names: Collection[str]) -> dict[str, str]:
        """Return the current versions of these rows; a name that was never used is left out."""
        keys = [encoded(self._groups + name) for name in broker_names]
        rows: list[GroupRow] = []
        for start in range(0, len(keys), READ_COUNT_MAX):
            reads = [
                {"request_range": {"key": key}} for key in keys[start : start + READ_COUNT_MAX]
            ]
            answer = await self._client.ask("/v3/kv/txn", {"success": reads})
            for response in answer.get("responses", ()):
                rows += _rows_of(response["response_range"])
        return {row.broker_name: row.version for row in rows}

    async def count(self) -> int:
        """Return the number of names that have a row, removed or not."""
        every = {"key": encoded(self._groups), "range_end": end_of(self._groups)}
        answer = await self._client.ask("/v3/kv/range", {**every, "count_only": True})
        return int(answer.get("count", 0))

    async def check(self) -> None:
        """Raise ArbiterUnavailableError unless rows can be read."""
        await self._client.ask("/v3/kv/range", {"key": encoded(self._groups)})

    async def _read(self, broker_name: str) -> tuple[GroupRow | None, int]:
        """Return a row and its revision; 0, as etcd compares it, if there is none."""
        answer = await self._client.ask(
            "/v3/kv/range", {"key": encoded(self._groups + broker_name)}
        )
        rows = _rows_of(answer)
        return (rows[0], int(answer["kvs"][0]["mod_revision"])) if rows else (None, 0)

    async def _range(self, first: str, prefix: str, count_max: int) -> list[GroupRow]:
        query = {"key": encoded(first), "range_end": end_of(prefix), "limit": count_max}
        return _rows_of(await self._client.ask("/v3/kv/range", query))

    def _change_key(self, broker_name: str, number: int) -> str:
        return encoded(f"{self._changes}{broker_name}/{number:0{NUMBER_DIGITS}}")


def encoded(text: str) -> str:
    """Return *text* as the gateway takes keys and values."""
    return b64encode(text.encode()).decode()


def end_of(prefix: str) -> str:
    """Return the end of the range of all keys that begin with *prefix*, whose end is a slash."""
    assert prefix.endswith("/")
    return encoded(prefix[:-1] + chr(ord("/") + 1))


def _rows_of(answer: dict[str, Any]) -> list[GroupRow]:
    return [GroupRow.from_text(value) for value in values_of(answer)]


def values_of(answer: dict[str, Any]) -> list[bytes]:
    """Return the values in the answer to a range."""
    return [b64decode(found["value"]) for found in answer.get("kvs", ())]
