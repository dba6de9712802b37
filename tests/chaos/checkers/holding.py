"""Promises about who may work on what: locks of queues, leases of messages.

Source: RocketMQ's queue locks and pop consumption, and what a client may conclude from an answer:
it believes to hold a lock from the answer on, until its session is over by its own clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from chaos.checkers.facts import Anomaly, Place, Queue, queue_of
from chaos.history import History, Operation

_NOT_HELD: Final = ("stale-lock", "member-not-found", "group-not-found", "client-id-in-use")


class Interval(NamedTuple):
    """A time in which a client believed to hold a queue."""

    start: float
    end: float
    client: str
    token: int


class _Beliefs:
    """The queues that one client believes to hold, as its requests are answered."""

    def __init__(self, client: str) -> None:
        self.ended: list[tuple[tuple[str, Queue], Interval]] = []
        self._client = client
        self._held: dict[tuple[str, Queue], Interval] = {}

    def take(self, one: Operation) -> None:
        """Draw the conclusions from an answer."""
        group = one.asked["group"]
        if one.op == "unlock":
            self._end((group, queue_of(one.asked["queue"])), one.begun_at)
        elif one.op == "commit":
            if one.told.get("code") in _NOT_HELD:
                self._end((group, queue_of(one.asked["queue"])), one.ended_at)
        elif one.is_ok and one.op == "lock":
            if "token" not in one.told:
                return  # another owner has it
            key = group, queue_of(one.asked["queue"])
            self._end(key, one.ended_at)
            until = one.begun_at + float(one.asked["session_seconds"])
            self._held[key] = Interval(one.ended_at, until, self._client, int(one.told["token"]))
        elif one.is_ok:
            for lost in one.told["lost"]:
                self._end((group, queue_of(lost)), one.ended_at)
            until = one.begun_at + float(one.asked["session_seconds"])
            for key, held in list(self._held.items()):
                if one.ended_at > held.end:  # its session was over before the answer came
                    self._end(key, held.end)
                else:
                    self._held[key] = held._replace(end=max(held.end, until))

    def end_all(self) -> None:
        """Let each session run out."""
        for key in list(self._held):
            self._end(key, float("inf"))

    def _end(self, key: tuple[str, Queue], at: float) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            end = max(held.start, min(at, held.end))
            self.ended.append((key, held._replace(end=end)))


def intervals(history: History) -> dict[tuple[str, Queue], list[Interval]]:
    """Return for each group and queue the times in which somebody believed to hold it.

    The belief begins with the answer to a lock. It ends when its owner asks to release it, when a
    heartbeat says that it is lost, or when a commit is refused because it is. It also ends when the
    session is over, counted from when the last heartbeat or lock that was answered was *sent*.
    """
    beliefs: dict[str, _Beliefs] = {}
    steps = history.named("lock", "heartbeat", "unlock", "commit")
    for one in sorted(steps, key=lambda one: one.ended_at):
        beliefs.setdefault(one.process, _Beliefs(one.process)).take(one)
    held: defaultdict[tuple[str, Queue], list[Interval]] = defaultdict(list)
    for client in beliefs.values():
        client.end_all()
        for key, interval in client.ended:
            held[key].append(interval)
    return held


def locks(history: History) -> Iterator[Anomaly]:
    """Find two clients that believed at the same time to hold one queue.

    Each believes so by its own clock, less the margin of its session (``lock_margin_seconds``).
    """
    margin = float(history.setting("lock_margin_seconds", 0.0))
    for (group, queue), found in intervals(history).items():
        ordered = sorted(found)
        for place, earlier in enumerate(ordered):
            for later in ordered[place + 1 :]:
                end = earlier.end - margin
                if later.start >= end:
                    break
                if later.client != earlier.client and later.end - margin > later.start:
                    yield Anomaly(
                        "locks",
                        f"{queue} of {group}: {earlier.client} held it from {earlier.start:.3f} to "
                        f"{end:.3f} (token {earlier.token}), and {later.client} from "
                        f"{later.start:.3f} (token {later.token})",
                        later.start,
                    )


def stale_tokens(history: History) -> Iterator[Anomaly]:
    """Find commits that were accepted by a token after another client had got a later one.

    Tokens of a queue also grow, or a stale one could look like the latest.
    """
    grants: defaultdict[tuple[str, Queue], list[Operation]] = defaultdict(list)
    for lock in history.named("lock"):
        if lock.is_ok and "token" in lock.told:
            grants[lock.asked["group"], queue_of(lock.asked["queue"])].append(lock)
    for (group, queue), found in grants.items():
        for earlier in found:
            for later in found:
                if (
                    earlier.ended_at < later.begun_at
                    and later.told["token"] < (earlier.told["token"])
                ):
                    text = (
                        f"{queue} of {group}: token {later.told['token']} was granted to "
                        f"{later.process} after {earlier.told['token']} to {earlier.process}"
                    )
                    yield Anomaly("stale-tokens", text, later.ended_at)
    for commit in history.named("commit"):
        token = commit.asked.get("token")
        if token is None or not commit.is_ok:
            continue
        key = commit.asked["group"], queue_of(commit.asked["queue"])
        for lock in grants[key]:
            if lock.ended_at < commit.begun_at and lock.told["token"] > token:
                text = (
                    f"{commit.process} committed {commit.asked['offset']} in {key[1]} by token "
                    f"{token}, after {lock.process} had got {lock.told['token']}"
                )
                yield Anomaly("stale-tokens", text, commit.ended_at)
                break


def leases(history: History) -> Iterator[Anomaly]:
    """Find messages that were delivered to two clients at a time, or after they were acknowledged.

    A lease lasts at least ``invisible_seconds`` from when it was asked for, unless its owner
    rejects the message. The margin ``clock_skew_seconds`` is what clocks of replicas may differ by.
    """
    skew = float(history.setting("clock_skew_seconds", 0.0))
    given: defaultdict[tuple[str, Place], list[Operation]] = defaultdict(list)
    ended: defaultdict[tuple[str, Place], list[Operation]] = defaultdict(list)
    for one in history.named("deliver", "ack", "nack"):
        if not (one.is_ok or (one.op == "nack" and one.outcome == "info")):
            continue
        for each in one.told["deliveries"] if one.op == "deliver" else one.asked["deliveries"]:
            key = one.asked["group"], Place(queue_of(each["queue"]), each["offset"])
            (given if one.op == "deliver" else ended)[key].append(one)
    for (group, place), deliveries in given.items():
        acks = [one for one in ended[group, place] if one.op == "ack"]
        rejections = [one for one in ended[group, place] if one.op == "nack"]
        for delivery in deliveries:
            if any(ack.ended_at < delivery.begun_at for ack in acks):
                text = f"{group} got {place} again ({delivery.process}) after its acknowledgement"
                yield Anomaly("leases", text, delivery.ended_at)
        if any(one.begun_at < max(d.ended_at for d in deliveries) for one in rejections):
            continue
        for one, other in combinations(deliveries, 2):
            if not (_may_follow(one, other, skew) or _may_follow(other, one, skew)):
                yield Anomaly(
                    "leases",
                    f"{group} got {place} by {one.process} at {one.ended_at:.3f}, and by "
                    f"{other.process} at {other.ended_at:.3f}, for "
                    f"{one.asked['invisible_seconds']} s each",
                    max(one.ended_at, other.ended_at),
                )


def _may_follow(earlier: Operation, later: Operation, skew: float) -> bool:
    """Tell whether a lease can be over when the other begins: each begins within its request."""
    lasts = float(earlier.asked["invisible_seconds"]) - skew
    return later.ended_at >= earlier.begun_at + lasts


def conserved(history: History) -> Iterator[Anomaly]:
    """Find messages that a group can neither receive any more nor has acknowledged.

    After the final phase each acknowledged send of a delivered topic is acknowledged by the group,
    pending there, or a dead letter: none has vanished (RabbitMQ's dead letters did).
    """
    for drained in history.named("drain"):
        if not drained.is_ok:
            continue
        queues = drained.asked["broker"], drained.asked["topic"]
        accounted = set(drained.told["dead"]) | set(drained.told["pending"])
        for ack in history.named("ack"):
            if ack.outcome != "fail" and ack.asked["group"] == drained.asked["group"]:
                accounted |= {one["message"] for one in ack.asked["deliveries"]}
        for send in history.named("send"):
            if send.is_ok and tuple(send.asked["queue"][:2]) == queues:
                message = send.asked["message"]
                if message not in accounted:
                    text = f"{drained.asked['group']}: {message} is neither acknowledged, pending "
                    yield Anomaly("conserved", f"{text}nor a dead letter", send.ended_at)
