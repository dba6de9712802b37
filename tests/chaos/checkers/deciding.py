"""Promises about messages that come later: delayed ones, and those of transactions.

Source: dead-lettering and delays of RabbitMQ that were lost in partitions; transaction coordinators
of Redpanda that forgot a decision in an election (its issues 6018 and 9571).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from chaos.checkers.facts import Anomaly, has_expired, places_read, reads
from chaos.history import History, Operation


def timers(history: History) -> Iterator[Anomaly]:
    """Find delayed messages that came twice, too early, never, or after they were recalled.

    A message is due ``delay_seconds`` after its send was begun, at the earliest. Clocks of replicas
    may differ by ``clock_skew_seconds``. By the end of the final phase all are due.
    """
    skew = float(history.setting("clock_skew_seconds", 0.0))
    first_read: dict[str, float] = {}
    for read in reads(history):
        first_read[read.message] = min(read.at, first_read.get(read.message, read.at))
    recalled: defaultdict[str, set[str]] = defaultdict(set)
    for recall in history.named("recall"):
        recalled[recall.asked["message"]].add(recall.outcome)
    seen = places_read(history)
    for send in history.named("send"):
        delay = send.asked.get("delay_seconds")
        if delay is None:
            continue
        message = send.asked["message"]
        count = len(seen.get(message, ()))
        due = send.begun_at + float(delay) - skew
        if count > 1:
            yield Anomaly("timers", f"{message} was delivered at {sorted(seen[message])}")
        if message in first_read and first_read[message] < due:
            text = f"{message} was read at {first_read[message]:.3f}, before {due:.3f}"
            yield Anomaly("timers", text, first_read[message])
        if "ok" in recalled[message] and count:
            yield Anomaly("timers", f"{message} was recalled, and delivered at {seen[message]}")
        if send.is_ok and not count and not recalled[message] & {"ok", "info"}:
            yield Anomaly("timers", f"{message} was never delivered", send.ended_at)


def transactions(history: History) -> Iterator[Anomaly]:
    """Find transactions with two outcomes, or whose outcome and message disagree.

    ``begin`` stores the half message, ``decide`` commits it or rolls it back, ``ask`` reads the
    state. A decision that was told to anybody is told to everybody from then on. The message of a
    committed one is read exactly once; of no other it is ever read.
    """
    seen = places_read(history)
    steps: defaultdict[str, list[Operation]] = defaultdict(list)
    for one in history.named("decide", "ask"):
        steps[one.asked["message"]].append(one)
    for begin in history.named("begin"):
        message = begin.asked["message"]
        told: list[tuple[float, float, str]] = []  # begun, ended, state
        known = [begin, *steps[message]]
        for one in steps[message]:
            state = one.told.get("state")
            if state in ("committed", "rolled_back"):  # a refusal names the state, too
                told.append((one.begun_at, one.ended_at, state))
            elif one.is_ok and one.op == "ask" and not _is_excused(history, one, known):
                told.append((one.begun_at, one.ended_at, state or "unknown"))
        decided = {state for _, _, state in told if state in ("committed", "rolled_back")}
        if len(decided) > 1:
            yield Anomaly("transactions", f"{message} was told to be committed and rolled back")
            continue
        since = min((end for _, end, state in told if state in decided), default=float("inf"))
        for begun, ended, state in told:
            if begun > since and state not in decided:
                text = f"{message} was decided, and {state} afterwards"
                yield Anomaly("transactions", text, ended)
        places = seen.get(message, set())
        asked = {
            one.asked["verb"]
            for one in steps[message]
            if one.op == "decide" and (one.is_ok or one.outcome == "info")
        }
        if len(places) > 1:
            yield Anomaly("transactions", f"{message} was committed to {sorted(places)}")
        if places and ("rolled_back" in decided or "commit" not in asked):
            state = decided.pop() if decided else "undecided"
            yield Anomaly("transactions", f"{message} is {state}, and was read at {places}")
        if "committed" in decided and not places:
            yield Anomaly("transactions", f"{message} was committed, and nobody read it")
        if begin.is_ok and any(
            one.told.get("state") == "unknown" and not _is_excused(history, one, known)
            for one in steps[message]
        ):
            yield Anomaly("transactions", f"{message} was begun, and is unknown")


def _is_excused(history: History, asked: Operation, steps: Sequence[Operation]) -> bool:
    """Tell whether an answer need not know the transaction, or its decision.

    Retention may have deleted it. And a replica may be behind, so only the one that told somebody
    of it must know, until the final phase.
    """
    is_unknown = asked.told.get("state") == "unknown"
    is_behind = not asked.process.startswith("final") and not any(
        one.is_ok
        and one.ended_at <= asked.begun_at
        and one.told.get("by") == asked.told.get("by")
        and (is_unknown or one.told.get("state") in ("committed", "rolled_back"))
        for one in steps
    )
    is_expired = has_expired(history, asked.asked["message"], asked.ended_at)
    return is_behind or (is_unknown and is_expired)
