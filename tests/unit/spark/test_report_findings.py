"""Findings: each is decided by the numbers alone, and says the number that it judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pytest

from eruca_spark.reports.audit_findings import audit_findings
from eruca_spark.reports.basis import Basis, Lacks, basis_findings
from eruca_spark.reports.dead_letters_findings import dead_letters_findings
from eruca_spark.reports.findings import Finding, ms_text, share_text
from eruca_spark.reports.hot_keys_findings import hot_keys_findings
from eruca_spark.reports.latency_findings import latency_findings
from eruca_spark.reports.transactions_findings import transactions_findings
from support.report_pages import at, basis, basis_row

Row = dict[str, Any]


def said(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.level, one.words.text("en")) for one in findings]


def keys(topic: str, *counts: int, others: int = 0) -> list[Row]:
    """Return the rows of keys with these counts; *others* are not listed."""
    total = sum(counts) + others
    return [
        {"topic": topic, "key": f"k{number}", "messages": count, "share": count / total}
        for number, count in enumerate(counts)
    ]


def queues(*counts: int, topic: str = "orders") -> list[Row]:
    mean = sum(counts) / len(counts)
    return [
        {
            "topic": topic,
            "broker_name": "broker-a",
            "queue_id": number,
            "messages": count,
            "times_the_mean": count / mean,
        }
        for number, count in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("listed", "headline"),
    [
        (
            keys("orders", 10, 9, 8, others=973),
            ("good", "Nothing is hot: the busiest key, 'k0' of topic orders, has 1 %."),
        ),
        (
            keys("orders", 300, 9, 8, others=683),
            (
                "warn",
                "One key is hot: 'k0' has 30 % of the keys of topic orders (300 messages).",
            ),
        ),
        (
            keys("orders", 300, 9, 8, others=683) + keys("payments", 80, 1, 1, others=18),
            (
                "warn",
                "2 keys are hot. The hottest is 'k0' with 80 % of the keys of topic payments (80"
                " messages).",
            ),
        ),
        (
            keys("orders", 25, 25, 25, 25),
            (
                "good",
                "No key stands out, but the topic has few: the busiest, 'k0' of topic orders, has"
                " 25 %.",
            ),
        ),
        (
            keys("orders", 7),
            (
                "warn",
                "One key is hot: 'k0' has 100 % of the keys of topic orders (7 messages).",
            ),
        ),
        ([], ("note", "No message has a key.")),
    ],
    ids=["nothing hot", "one hot", "several hot", "few and even", "only one", "none"],
)
def test_hot_keys(listed: list[Row], headline: tuple[str, str]) -> None:
    found = hot_keys_findings({"keys": listed, "sharding-keys": [], "queues": queues(5, 5)})

    assert said(found)[0] == headline


def test_skewed_queues_come_before_keys_that_are_not_hot() -> None:
    rows = {
        "keys": keys("orders", 1, 1, 1, others=97),
        "sharding-keys": keys("orders", 50, 1, 1, others=48),
        "queues": queues(90, 5, 5),
    }

    assert said(hot_keys_findings(rows)) == [
        (
            "warn",
            "One sharding key is hot: 'k0' has 50 % of topic orders (50 messages), all in one"
            " queue.",
        ),
        (
            "warn",
            "Queues are skewed: orders/broker-a/0 has 2.7 times the mean of its topic (90"
            " messages).",
        ),
        ("good", "Nothing is hot: the busiest key, 'k0' of topic orders, has 1 %."),
    ]


def test_a_single_queue_is_beside_no_mean() -> None:
    found = hot_keys_findings({"keys": [], "sharding-keys": [], "queues": queues(90)})

    assert said(found)[-1] == ("note", "Each topic has messages in one queue only.")


def times(topic: str, p99: float, worst: float, p50: float = 1.0) -> Row:
    return {"topic": topic, "p50_ms": p50, "p99_ms": p99, "worst_ms": worst}


def minutes(topic: str, *p99s: float) -> list[Row]:
    return [
        {"topic": topic, "minute": at(60 * number), "p99_ms": p99}
        for number, p99 in enumerate(p99s)
    ]


def group(name: str, p99: float | None, backlog: int = 0) -> Row:
    return {
        "consumer_group": name,
        "topic": "orders",
        "p99_ms": p99,
        "backlog": backlog,
        "oldest_stored_at": at(5) if backlog else None,
    }


@pytest.mark.parametrize(
    ("rows", "headline"),
    [
        (
            {"topics": [times("a", 3, 9), times("b", 20, 700)], "minutes": minutes("b", 20)},
            (
                "good",
                "Storing is fast: 99 % of the messages of the slowest topic, b, were stored within"
                " 20 ms, the slowest message within 700 ms.",
            ),
        ),
        (
            {"topics": [times("a", 1_500, 9_000)], "minutes": []},
            (
                "warn",
                "Storing is slow: 99 % of the messages of topic a were stored within 1.5 s, the"
                " slowest within 9.0 s.",
            ),
        ),
        (
            {"topics": [times("a", 30, 900)], "minutes": minutes("a", 20, 20, 20, 600, 20)},
            (
                "warn",
                "Topic a had a peak: in the minute of 2026-11-21 08:03:00Z its p99 was 600 ms,"
                " usually 20 ms.",
            ),
        ),
        (
            {"topics": [times("a", 30, 900, p50=-40)], "minutes": []},
            (
                "warn",
                "Clocks differ: half of the messages of topic a were stored 40 ms or more before"
                " they were created. Synchronise producers and brokers.",
            ),
        ),
        (
            {"topics": [], "minutes": []},
            ("note", "There are no messages with a time of creation."),
        ),
    ],
    ids=["fast", "slow", "a peak", "clocks", "empty"],
)
def test_latency(rows: Mapping[str, list[Row]], headline: tuple[str, str]) -> None:
    found = said(latency_findings(rows))

    assert found[0] == headline
    assert found[-1] == ("note", "Consumer groups were not examined; --groups includes them.")


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        (
            [group("slow", 70_000, 12), group("fast", 5, 3)],
            [
                (
                    "warn",
                    "Group slow is behind: 12 messages of topic orders wait, the oldest since"
                    " 2026-11-21 08:00:05Z.",
                ),
                (
                    "warn",
                    "The slowest group, slow, was past 99 % of the messages of topic orders within"
                    " 70.0 s.",
                ),
            ],
        ),
        ([group("all", None)], [("good", "No group is behind: each is past every message.")]),
        ([], [("note", "No consumer group has committed or acknowledged a message.")]),
    ],
    ids=["behind", "past all", "none"],
)
def test_latency_of_groups(groups: list[Row], told: list[tuple[str, str]]) -> None:
    found = said(latency_findings({"topics": [], "minutes": [], "groups": groups}))

    assert [one for one in found if "time of creation" not in one[1]] == told


def letters(group_name: str, count: int, reason: str | None = "failed") -> Row:
    return {
        "consumer_group": group_name,
        "origin_topic": "orders",
        "reason": reason,
        "dead_letters": count,
        "last_at": at(count),
    }


def test_dead_letters_of_one_origin_that_become_more() -> None:
    days = [
        {"consumer_group": "billing", "day": date(2026, 11, day), "dead_letters": count}
        for day, count in ((18, 3), (19, 4), (20, 2), (21, 32))
    ]
    rows = {"reasons": [letters("billing", 41), letters("shipping", 9, None)], "days": days}

    assert said(dead_letters_findings(rows)) == [
        (
            "warn",
            "There are 50 dead letters; the newest, of group billing, is from 2026-11-21"
            " 08:00:41Z.",
        ),
        ("note", "One origin has 82 % of them: group billing, topic orders, reason failed."),
        ("warn", "They become more: group billing had 32 on 2026-11-21, usually 3 a day."),
        ("note", "9 have no reason, as those that RocketMQ wrote."),
    ]


def test_dead_letters_of_many_origins_and_of_none() -> None:
    rows = {"reasons": [letters(name, 1) for name in "abc"], "days": []}

    assert said(dead_letters_findings(rows))[1] == (
        "note",
        "No origin has most of them: the largest share is 33 % (group a, topic orders, reason"
        " failed).",
    )
    assert said(dead_letters_findings({"reasons": [], "days": []})) == [
        ("good", "There are no dead letters.")
    ]
    assert len(dead_letters_findings({"reasons": [letters("a", 1)], "days": []})) == 1


def outcome(**given: int) -> Row:
    states = dict.fromkeys(("committed", "rolled_back", "parked", "pending"), 0)
    row = {**states, "decided_by_check": 0, **given}
    count = sum(row[state] for state in states)
    return {"producer_group": "shop", "transactions": count, "p99_ms": 900.0, **row}


@pytest.mark.parametrize(
    ("row", "headline"),
    [
        (outcome(committed=9, rolled_back=1), ("good", "All 10 transactions are decided.")),
        (
            outcome(committed=9, pending=2),
            ("warn", "2 transactions are open, the oldest for 15 min."),
        ),
        (
            outcome(committed=9, parked=1, pending=2),
            ("bad", "One transaction is parked: its checks have ended without an answer."),
        ),
        (outcome(), ("note", "There are no transactions.")),
    ],
    ids=["decided", "open", "parked", "none"],
)
def test_transactions(row: Row, headline: tuple[str, str]) -> None:
    still_open = [{"state": "pending", "age_seconds": 900.0}]
    found = said(transactions_findings({"outcomes": [row], "open": still_open}))

    assert found[0] == headline


def test_transactions_that_checks_decided_or_that_were_rolled_back() -> None:
    row = outcome(committed=4, rolled_back=6, decided_by_check=2)

    assert said(transactions_findings({"outcomes": [row], "open": []}))[1:] == [
        ("warn", "60 % of the decided ones were rolled back (6 of 10)."),
        (
            "warn",
            "A check decided 20 % of them (2): the producer's own decision was late or lost.",
        ),
        (
            "note",
            "The slowest producer group, shop, decided 99 % of its transactions within 900 ms.",
        ),
    ]


def audited(**given: int) -> Row:
    faults = dict.fromkeys(("missing", "duplicates", "times_back", "damaged", "first_offset"), 0)
    place = {"topic": "orders", "broker_name": "broker-a", "queue_id": 0, "messages": 50}
    return {**place, **faults, **given}


def test_an_audit() -> None:
    sound = [audited(), audited(queue_id=1)]
    faulty = [audited(first_offset=7), audited(queue_id=1, missing=4, damaged=1)]

    assert said(audit_findings({"queues": sound})) == [
        (
            "good",
            "Every queue is sound: 100 messages in 2 queues, none missing, none twice, none"
            " damaged.",
        )
    ]
    assert said(audit_findings({"queues": faulty})) == [
        ("bad", "Queues with faults: 1 of 2; the worst is orders/broker-a/1."),
        ("bad", "4 messages are missing."),
        ("bad", "One message is damaged."),
        ("note", "One queue does not begin at 0: retention, or the range that was read."),
    ]
    assert said(audit_findings({"queues": []})) == [("note", "There are no messages.")]


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (
            basis(basis_row()),
            [("good", "Nothing is missing: every queue was read without a gap.")],
        ),
        (
            basis(basis_row(), basis_row(broker_name="broker-b", last_stored_at=at(900))),
            [
                (
                    "warn",
                    "Broker broker-b became silent: its last message is from 2026-11-21 08:15:00Z,"
                    " 35 min before the newest of the others.",
                )
            ],
        ),
        (
            basis(basis_row(), lacks=Lacks(away=["orders: broker-b: timed out"], may_lack=True)),
            [
                (
                    "warn",
                    "A broker was away, so its messages are missing: orders: broker-b: timed out",
                )
            ],
        ),
        (
            basis(basis_row(offsets=97, damaged=1), topics=["orders", "returns"]),
            [
                ("warn", "Topic returns has no messages here."),
                (
                    "warn",
                    "3 messages are missing within queues, most of them in orders/broker-a/0.",
                ),
                ("warn", "One message is damaged."),
            ],
        ),
        (
            basis(basis_row(), lacks=Lacks(deleted_count=5)),
            [("warn", "Retention deleted 5 messages before an export to the lake.")],
        ),
        (
            basis(basis_row(), lacks=Lacks(may_lack=True)),
            [
                (
                    "note",
                    "Losses were tolerated (failOnDataLoss=false); the command named them on"
                    " stderr.",
                )
            ],
        ),
        (
            basis(
                basis_row(),
                basis_row(queue_id=1, damaged=100, first_stored_at=None, last_stored_at=None),
            ),
            [("warn", "100 messages are damaged.")],
        ),
        (basis(topics=["orders"]), [("warn", "Topic orders has no messages here.")]),
        (basis(), []),
    ],
    ids=[
        *("whole", "silent", "away", "gaps", "deleted", "tolerated", "only damaged"),
        *("no messages", "empty lake"),
    ],
)
def test_a_page_says_what_its_report_lacks(read: Basis, told: list[tuple[str, str]]) -> None:
    assert said(basis_findings(read)) == told


def test_shares_and_durations_are_short_and_never_rounded_to_all_or_nothing() -> None:
    shares = (0, 0.0001, 0.004, 0.05, 0.345, 0.999, 1)
    texts = ["0 %", "< 0.1 %", "0.4 %", "5 %", "34 %", "99 %", "100 %"]
    assert [share_text(share) for share in shares] == texts
    spans = (0.4, 999, 1_500, 119_000, 3_600_000, 9_000_000)
    assert [ms_text(ms) for ms in spans] == [
        "0 ms",
        "999 ms",
        "1.5 s",
        "119.0 s",
        "60 min",
        "2.5 h",
    ]
