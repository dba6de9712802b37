"""Promises of a broker group as a whole: one master an epoch, equal logs, and that it goes on.

Source: NATS 2.12.1 (logs of replicas that differ for good, data deleted because of damage), and
RocketMQ's controller, whose isolated master went on (its issue 7017).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from chaos.checkers.facts import Anomaly, was_wiped
from chaos.history import History, Operation

LIVE_WITHIN_SECONDS = 30.0  # after everything has healed


def epochs(history: History) -> Iterator[Anomaly]:
    """Find an epoch with two masters, and a replica or a row whose epoch decreases.

    ``status`` is a replica's own answer, ``row`` the arbiter's. Epoch 0 stands for none.
    """
    restored = [note.at for note in history.noted("arbiter-restored")]
    masters: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    latest: dict[tuple[str, str], tuple[int, float]] = {}
    for one in sorted(history.named("status", "row"), key=lambda one: one.ended_at):
        if not one.is_ok:
            continue
        group, epoch = one.asked["broker"], int(one.told["epoch"])
        if one.op == "row":
            masters[group, epoch].add(one.told["master"])
            who = "the row"
        else:
            who = f"replica {one.asked['replica']} ({one.told['uid']})"
            if one.told["role"] == "master":
                masters[group, epoch].add(one.asked["replica"])
        if epoch == 0:
            continue
        before, at = latest.get((group, who), (0, 0.0))
        forgot = one.op == "row" and any(at < when < one.ended_at for when in restored)
        if epoch < before and one.begun_at > at and not forgot:
            text = f"{who} of {group} went from epoch {before} to {epoch}"
            yield Anomaly("epochs", text, one.ended_at)
        latest[group, who] = epoch, one.ended_at
    for (group, epoch), found in masters.items():
        if len(found) > 1:
            text = f"epoch {epoch} of {group} has the masters {sorted(found)}"
            yield Anomaly("epochs", text)


def equal_logs(history: History) -> Iterator[Anomaly]:
    """Find replicas whose logs differ, byte by byte, in what both keep and is confirmed.

    ``log`` has digests of a replica's blocks by log offset. All replicas of a group are asked for
    the same range: from the largest of their minimums up to what all have confirmed.
    """
    by_group: defaultdict[str, list[Operation]] = defaultdict(list)
    for one in history.named("log"):
        if one.is_ok:
            by_group[one.asked["broker"]].append(one)
    for group, logs in by_group.items():
        start, end = logs[0].asked["from"], logs[0].asked["to"]
        for one in logs:
            replica = one.asked["replica"]
            if (one.asked["from"], one.asked["to"]) != (start, end):
                text = f"{group}: replica {replica} was not compared from {start} to {end}"
                yield Anomaly("equal-logs", text)
            if one.told["min"] > start or one.told["confirmed"] < end:
                text = f"{group}: replica {replica} has {one.told['min']}-{one.told['confirmed']}"
                yield Anomaly("equal-logs", f"{text} of {start}-{end}")
            blocks, others = logs[0].told["blocks"], one.told["blocks"]
            offsets = sorted(blocks.keys() | others.keys(), key=int)
            different = [offset for offset in offsets if blocks.get(offset) != others.get(offset)]
            if different:
                yield Anomaly(
                    "equal-logs",
                    f"{group}: replicas {logs[0].asked['replica']} and {replica} differ in "
                    f"{len(different)} of {len(offsets)} blocks, first at {different[0]}",
                )


def liveness(history: History) -> Iterator[Anomaly]:
    """Find broker groups that take no sends, or answer no pulls, 30 s after everything healed."""
    ends = [note.at for note in history.noted("end")]
    end = ends[0] if ends else max((one.begun_at for one in history.operations), default=0.0)
    groups = history.setting("brokers", [])
    for healed in history.noted("healed"):
        deadline = healed.at + LIVE_WITHIN_SECONDS
        broken = [note.at for note in history.noted("broken") if note.at > healed.at]
        if min([*broken, end]) < deadline:
            continue  # nobody waited so long
        for group in groups:
            for op in ("send", "pull"):
                if not any(
                    one.is_ok and healed.at < one.ended_at <= deadline
                    for one in history.named(op)
                    if one.asked["queue"][0] == group
                ):
                    text = f"{group} had no successful {op} until {LIVE_WITHIN_SECONDS:.0f} s after"
                    yield Anomaly("liveness", f"{text} everything healed", deadline)


def caught_up(history: History) -> Iterator[Anomaly]:
    """Find replicas that did not answer in the final phase, or are behind their master there."""
    groups = history.setting("brokers", [])
    replicas = history.setting("replicas", 0)
    if not any(history.noted("final")):
        return
    logs = [one for one in history.named("log") if one.is_ok]
    answered = {(one.asked["broker"], one.asked["replica"]) for one in logs}
    for group in groups:
        for replica in range(1, replicas + 1):
            if (group, replica) not in answered:
                text = f"replica {replica} of {group} did not catch up after everything healed"
                yield Anomaly("caught-up", f"{text}: {_last_status(history, group, replica)}")


def _last_status(history: History, group: str, replica: int) -> str:
    statuses = [
        note.value["status"]
        for note in history.noted("behind")
        if (note.value["broker"], note.value["replica"]) == (group, replica)
    ]
    return str(statuses[-1]) if statuses else "no status"


def rebuilt(history: History) -> Iterator[Anomaly]:
    """Find answers that changed when a replica's projections were deleted and rebuilt."""
    for one in history.named("rebuild"):
        if one.is_ok:
            before, after = one.told["before"], one.told["after"]
            for name in sorted(before.keys() | after.keys()):
                if before.get(name) != after.get(name):
                    yield Anomaly(
                        "rebuilt",
                        f"{one.asked['broker']}, replica {one.asked['replica']}: {name} was "
                        f"{before.get(name)}, and is {after.get(name)} from a rebuilt projection",
                    )


def repaired(history: History) -> Iterator[Anomaly]:
    """Find flipped bits that no scrub has repaired from a peer by the end.

    Each is named by its place. A replica whose disk was wiped afterwards has none any more.
    """
    compared = {_place_of(note.value): note.value for note in history.noted("compared")}
    wiped: dict[tuple[str, int], float] = {}
    for note in history.noted("wiped"):
        wiped[note.value["broker"], note.value["replica"]] = note.at
    for flip in history.noted("flipped"):
        group, replica, offset = place = _place_of(flip.value)
        if wiped.get((group, replica), -1.0) > flip.at:
            continue
        found = compared.get(place, {})
        text = f"the bit flipped at {offset} of replica {replica} of {group}"
        if not found.get("is_equal"):
            yield Anomaly("repaired", f"{text} is still flipped", flip.at)
        elif not found.get("is_told"):
            yield Anomaly("repaired", f"{text} is right again, and no repair was logged", flip.at)


def _place_of(value: Mapping[str, Any]) -> tuple[str, int, int]:
    return value["broker"], value["replica"], value["offset"]


def topics(history: History) -> Iterator[Anomaly]:
    """Find topics that are there after their deletion, or gone after their creation.

    Each topic is created and deleted by one process, so its operations are in an order. One with an
    unknown outcome may take effect at any later time, so nothing is certain after it. A replica may
    be behind, so only the one that has acknowledged the change must know of it; in the final phase
    each does.
    """
    last_by: dict[tuple[str, str], tuple[str, float]] = {}  # its URL, and when
    possible: dict[tuple[str, str], set[bool]] = {}
    in_doubt: defaultdict[tuple[str, str], set[bool]] = defaultdict(set)
    for one in history.named("create-topic", "delete-topic", "topic"):
        key = one.asked["broker"], one.asked["topic"]
        if one.op != "topic":
            wanted = one.op == "create-topic"
            if one.is_ok:
                possible[key] = {wanted} | in_doubt[key]
                last_by[key] = one.told.get("by", ""), one.begun_at
            elif one.outcome == "info":
                in_doubt[key].add(wanted)
                possible[key] = possible.get(key, {False}) | {wanted}
        elif one.is_ok and (
            one.process.startswith("final") or _must_know(history, one, last_by.get(key))
        ):
            found = bool(one.told["exists"])
            if found not in possible.get(key, {False}):
                text = f"topic {key[1]} at {key[0]}: expected {not found}, found {found}"
                yield Anomaly("topics", text, one.ended_at)


def _must_know(history: History, one: Operation, changed: tuple[str, float] | None) -> bool:
    """Tell whether the store that has acknowledged the last change answers."""
    by, at = changed or ("", 0.0)
    return bool(one.told.get("by", "") == by) and not was_wiped(history, by, at, one.ended_at)
