"""Traffic by topic and group: bounded, whatever the number of topics."""

from __future__ import annotations

from eruca_broker.processors.traffic import OTHERS, TRAFFIC_MAX, by_group, by_topic


def test_batches_of_a_topic_are_summed() -> None:
    flows = by_topic()
    flows.add("orders", 3, 100)
    flows.add("orders", 2, 50)

    [(topic, flow)] = flows.items(lambda _: True)

    assert (topic, flow.messages, flow.bytes) == ("orders", 5, 150)


def test_further_topics_are_counted_together() -> None:
    flows = by_topic()
    for number in range(TRAFFIC_MAX + 3):
        flows.add(f"topic-{number}", 2, 10)

    counted = {topic: flow.messages for topic, flow in flows.items(lambda _: True)}

    assert len(counted) == TRAFFIC_MAX + 1
    assert counted[OTHERS] == 3 * 2


def test_what_was_deleted_makes_room_and_others_stay() -> None:
    flows = by_group()
    for number in range(TRAFFIC_MAX + 1):
        flows.add(("billing", f"topic-{number}"), 1)

    flows.items(lambda key: key[1] == "topic-0")
    flows.add(("billing", "new"), 1)

    assert set(dict(flows.items(lambda _: True))) == {
        ("billing", "topic-0"),
        (OTHERS, OTHERS),
        ("billing", "new"),
    }
