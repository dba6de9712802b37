"""Members of a group that lock queues, read on, and commit by the lock's token."""

from __future__ import annotations

from typing import Any, Final

from chaos.client import Answer, Client, Request
from chaos.workloads.sending import QUEUE_COUNT, TOPIC, pull

GROUP: Final = "readers"
SESSION_SECONDS: Final = 5.0


class Member:
    """A member of the group, which holds at most one queue at a time."""

    def __init__(self, client: Client, broker: str) -> None:
        self._client = client
        self._broker = broker
        self._incarnation = f"run-{client.name}"
        self._held: tuple[int, int] | None = None  # queue id and token
        self._next = 0
        self._session = 0

    async def run(self) -> None:
        """Join, lock, read and commit, and let go at random."""
        client = self._client
        while not client.world.is_over.is_set():
            beat = await self._heartbeat()
            if not beat.is_ok:
                continue
            if self._held is not None and beat.told["lost"]:
                self._held = None
            if self._held is None:
                await self._lock()
            else:
                await self._read(*self._held)
            await client.pause(client.random.random() * 0.2)  # the pace of the load

    async def _heartbeat(self) -> Answer:
        locks = []
        if self._held is not None:
            queue_id, token = self._held
            locks = [{"topic": TOPIC, "queue_id": queue_id, "token": token}]
        body = {
            "incarnation": self._incarnation,
            "subscriptions": [{"topic": TOPIC}],
            "session_seconds": SESSION_SECONDS,
            "start": "earliest",
            "locks": locks,
        }
        broker = self._broker

        def read(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
            lost = [[broker, one["topic"], one["queue_id"]] for one in told["lost_locks"]]
            return {"lost": lost, "generation": told["generation"]}

        asked = {"group": self._group, "session_seconds": SESSION_SECONDS}
        target = f"/v1/groups/{GROUP}/members/{self._client.name}"
        return await self._client.do("heartbeat", asked, Request(broker, "PUT", target, body), read)

    @property
    def _group(self) -> str:
        return f"{GROUP}@{self._broker}"

    async def _lock(self) -> None:
        queue_id = self._client.random.randrange(QUEUE_COUNT)
        asked = {
            "group": self._group,
            "queue": [self._broker, TOPIC, queue_id],
            "session_seconds": SESSION_SECONDS,
        }
        body = {
            "client_id": self._client.name,
            "incarnation": self._incarnation,
            "queues": [{"topic": TOPIC, "queue_id": queue_id}],
        }

        def read(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
            [*granted] = told["locks"]
            if not granted:
                return {"owner": told["refused"][0]["owner"]}
            return {"token": granted[0]["token"], "offset": granted[0]["next_offset"]}

        # Most requests find another owner, which is no belief of anything: only grants are locks.
        request = Request(self._broker, "POST", f"/v1/groups/{GROUP}/locks", body)
        answer = await self._client.do("lock", asked, request, read)
        if answer.is_ok and "token" in answer.told:
            self._held = queue_id, answer.told["token"]
            self._next = answer.told["offset"]
            self._session += 1

    async def _read(self, queue_id: int, token: int) -> None:
        client = self._client
        answer = await pull(
            client,
            self._broker,
            TOPIC,
            queue_id,
            self._next,
            session=self._session,
            wait_seconds=0.2,
        )
        if answer.is_ok and answer.told["next"] > self._next:
            self._next = answer.told["next"]
            if not await self._commit(queue_id, token):
                self._held = None
                return
        if client.random.random() < 0.05:
            await self._unlock(queue_id, token)

    async def _commit(self, queue_id: int, token: int) -> bool:
        """Commit the offset; return False if the lock is another's."""
        asked = {
            "group": self._group,
            "queue": [self._broker, TOPIC, queue_id],
            "offset": self._next,
            "token": token,
        }
        offsets = {"topic": TOPIC, "queue_id": queue_id, "offset": self._next, "token": token}
        body = {
            "offsets": [offsets],
            "client_id": self._client.name,
            "incarnation": self._incarnation,
        }
        request = Request(self._broker, "PUT", f"/v1/groups/{GROUP}/offsets", body)
        answer = await self._client.do("commit", asked, request, lambda _: {})
        code = answer.told.get("code")
        return code not in ("stale-lock", "member-not-found", "group-not-found", "client-id-in-use")

    async def _unlock(self, queue_id: int, token: int) -> None:
        asked = {"group": self._group, "queue": [self._broker, TOPIC, queue_id]}
        body = {
            "client_id": self._client.name,
            "incarnation": self._incarnation,
            "queues": [{"topic": TOPIC, "queue_id": queue_id, "token": token}],
        }
        self._held = None
        request = Request(self._broker, "POST", f"/v1/groups/{GROUP}/locks:release", body)
        await self._client.do("unlock", asked, request, lambda _: {})


async def consume(client: Client, broker: str) -> None:
    """Be a member of the group."""
    await Member(client, broker).run()


async def watch_commits(client: Client, broker: str) -> None:
    """Ask for the group's committed offsets, again and again."""
    while not client.world.is_over.is_set():
        await committed(client, broker, client.random.randrange(QUEUE_COUNT))
        await client.pause(0.5)  # the pace of the load


async def committed(client: Client, broker: str, queue_id: int) -> Answer:
    """Ask for the group's committed offset in a queue."""
    asked = {"group": f"{GROUP}@{broker}", "queue": [broker, TOPIC, queue_id]}

    def read(told: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        return {
            "offset": next(
                (
                    one["committed_offset"]
                    for one in told["offsets"]
                    if (one["topic"], one["queue_id"]) == (TOPIC, queue_id)
                ),
                None,
            )
        }

    request = Request(broker, "GET", f"/v1/groups/{GROUP}/offsets?topic={TOPIC}")
    return await client.do("committed", asked, request, read)
