"""Checkers of locks and leases against a perfect server, and one that grants twice.

Requests and answers take their time, and answers may be lost. The server's clock is the only one.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from chaos.checkers import check
from chaos.history import Operation, Outcome
from chaos.made_histories import GROUP, QUEUE, history, op

SESSION_SECONDS = 5.0
CLIENTS = ("c1", "c2", "c3")
Steps = list[tuple[str, str, float, float, bool]]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(CLIENTS),
        st.sampled_from(["lock", "heartbeat", "heartbeat", "unlock"]),
        st.floats(0.0, 4.0),  # on the way there
        st.floats(0.0, 4.0),  # on the way back
        st.booleans(),  # its answer arrives
    ),
    max_size=40,
)


class LockServer:
    """Grants one queue; a session lasts from when the server has received a request."""

    def __init__(self, *, is_perfect: bool) -> None:
        self._is_perfect = is_perfect
        self._owner: str | None = None
        self._until = 0.0
        self._token = 0

    def answer(self, client: str, name: str, now: float) -> dict[str, object]:
        """Do what *client* asks at a time; return what it is told."""
        if self._until <= now:
            self._owner = None
        is_owner = self._owner == client
        if name == "lock":
            if self._owner not in (None, client) and self._is_perfect:
                return {"owner": self._owner}
            if not is_owner:
                self._owner, self._token = client, self._token + 1
            self._until = now + SESSION_SECONDS
            return {"token": self._token}
        if name == "unlock":
            self._owner = None if is_owner else self._owner
            return {}
        self._until = now + SESSION_SECONDS if is_owner else self._until
        return {"lost": [] if is_owner else [QUEUE]}


def locking(steps: Steps, server: LockServer) -> list[Operation]:
    """Return the history of clients that each do one thing after the other."""
    free_at = dict.fromkeys(CLIENTS, 0.0)
    asked = {"group": GROUP, "queue": QUEUE, "session_seconds": SESSION_SECONDS}
    requests: list[tuple[float, Operation, bool]] = []  # when received, without its answer
    for client, name, there, back, arrives in steps:
        begun = free_at[client]
        received, end = begun + there, begun + there + back
        free_at[client] = end + 0.01
        outcome: Outcome = "ok" if arrives else "info"
        request = op(name, asked, at=begun, until=end, by=client, outcome=outcome)
        requests.append((received, request, arrives))
    done: list[Operation] = []
    for received, request, arrives in sorted(requests, key=lambda one: one[0]):
        told = server.answer(request.process, request.op, received)
        done.append(replace(request, told=told if arrives else {}))
    return done


@given(STEPS)
def test_a_perfect_lock_server_has_no_anomaly(steps: Steps) -> None:
    found = check(history(locking(steps, LockServer(is_perfect=True))))

    assert (found["locks"], found["stale-tokens"]) == ([], [])


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(0.0, 0.4))
def test_a_server_that_grants_twice_is_found(there: float, back: float, later: float) -> None:
    steps: Steps = [
        ("c1", "lock", 0.0, 0.1, True),
        ("c2", "lock", 0.2 + there, back + later, True),
    ]

    found = check(history(locking(steps, LockServer(is_perfect=False))))

    assert found["locks"]


INVISIBLE_SECONDS = 5.0
REQUESTS = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 8.0), st.floats(0.0, 3.0)), max_size=12
)


def leasing(requests: list[tuple[float, float, float]], lease_seconds: float) -> list[Operation]:
    """Return deliveries of one message; each request is held until the message is free."""
    free_at = 0.0
    done: list[Operation] = []
    for begun, held, back in sorted(requests):
        given_at = max(begun, free_at)
        if given_at <= begun + held:
            free_at = given_at + lease_seconds
            told = {"deliveries": [{"queue": QUEUE, "offset": 0, "message": "m0"}]}
            asked = {"group": GROUP, "topic": "orders", "invisible_seconds": INVISIBLE_SECONDS}
            by = f"c{len(done)}"
            done.append(op("deliver", asked, told, at=begun, until=given_at + back, by=by))
    return done


@given(REQUESTS)
def test_a_perfect_lease_has_no_anomaly(requests: list[tuple[float, float, float]]) -> None:
    assert check(history(leasing(requests, INVISIBLE_SECONDS)))["leases"] == []


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_lease_that_is_too_short_is_found(held: float, back: float) -> None:
    requests = [(0.0, 0.0, 0.1), (1.0, held, back)]

    assert check(history(leasing(requests, 1.0)))["leases"]
