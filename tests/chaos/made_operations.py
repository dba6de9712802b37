"""Operations of made histories, as a client or the cluster would have noted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from chaos.history import Event, Operation
from chaos.made_histories import GROUP, QUEUE, note, op

Steps = Sequence[Operation | Event]


def lock(by: str, at: float, token: int, *, session: float = 5.0) -> Operation:
    asked = {"group": GROUP, "queue": QUEUE, "session_seconds": session}
    return op("lock", asked, {"token": token}, at=at, by=by)


def heartbeat(by: str, at: float, *, until: float | None = None, lost: Any = ()) -> Operation:  # noqa: ANN401
    asked = {"group": GROUP, "session_seconds": 5.0}
    return op("heartbeat", asked, {"lost": list(lost)}, at=at, until=until, by=by)


def unlock(by: str, at: float) -> Operation:
    return op("unlock", {"group": GROUP, "queue": QUEUE}, at=at, by=by, outcome="info")


def commit(offset: int, at: float, **asked: Any) -> Operation:  # noqa: ANN401
    return op("commit", {"group": GROUP, "queue": QUEUE, "offset": offset, **asked}, at=at)


def committed(offset: int | None, at: float) -> Operation:
    return op("committed", {"group": GROUP, "queue": QUEUE}, {"offset": offset}, at=at)


def delivered(message: str, offset: int) -> dict[str, Any]:
    return {"queue": QUEUE, "offset": offset, "message": message}


def deliver(
    by: str, at: float, message: str, offset: int, *, until: float | None = None
) -> Operation:
    asked = {"group": GROUP, "topic": "orders", "invisible_seconds": 5.0}
    told = {"deliveries": [delivered(message, offset)]}
    return op("deliver", asked, told, at=at, until=until, by=by)


def ended(name: str, by: str, at: float, message: str, offset: int) -> Operation:
    return op(name, {"group": GROUP, "deliveries": [delivered(message, offset)]}, at=at, by=by)


def drain(*, pending: Sequence[str] = (), dead: Sequence[str] = ()) -> Operation:
    asked = {"group": GROUP, "broker": "broker-a", "topic": "orders"}
    return op("drain", asked, {"pending": list(pending), "dead": list(dead)}, at=90.0)


def begin(message: str, at: float = 0.0) -> Operation:
    return op("begin", {"queue": QUEUE, "message": message}, {"transaction": "t1"}, at=at)


def decide(message: str, verb: str, at: float, **fields: Any) -> Operation:  # noqa: ANN401
    state = {"commit": "committed", "rollback": "rolled_back"}[verb]
    told = {"state": state} if fields.get("outcome", "ok") == "ok" else {}
    return op("decide", {"message": message, "verb": verb}, told, at=at, **fields)


def ask(message: str, state: str, at: float) -> Operation:
    return op("ask", {"message": message}, {"state": state}, at=at)


def status(replica: int, epoch: int, role: str, at: float, uid: str = "u") -> Operation:
    asked = {"broker": "broker-a", "replica": replica}
    return op("status", asked, {"epoch": epoch, "role": role, "uid": uid}, at=at, by=f"s{replica}")


def row(master: int, epoch: int, at: float) -> Operation:
    return op("row", {"broker": "broker-a"}, {"epoch": epoch, "master": master}, at=at)


def log(
    replica: int,
    blocks: dict[str, str],
    *,
    span: tuple[int, int] = (0, 200),
    has: tuple[int, int] = (0, 250),
) -> Operation:
    asked = {"broker": "broker-a", "replica": replica, "from": span[0], "to": span[1]}
    return op("log", asked, {"min": has[0], "confirmed": has[1], "blocks": blocks}, at=110.0)


def topic(name: str, at: float, **fields: Any) -> Operation:  # noqa: ANN401
    asked = {"broker": "broker-a", "topic": "passing"}
    told = {"exists": fields.pop("exists")} if "exists" in fields else {}
    return op(name, asked, told, at=at, **fields)


def rebuild(after: str) -> Operation:
    asked = {"broker": "broker-a", "replica": 1}
    return op("rebuild", asked, {"before": {"orders": "d1"}, "after": {"orders": after}}, at=120.0)


def flipped(*, at: float = 0.0) -> Event:
    return note("flipped", at, broker="broker-a", replica=2, offset=7)


def compared(*, is_equal: bool = True, is_told: bool = True) -> Event:
    value = {"broker": "broker-a", "replica": 2, "offset": 7}
    return note("compared", 9.0, **value, is_equal=is_equal, is_told=is_told)


RUN: Final = note("run", brokers=["broker-a"], replicas=2)
