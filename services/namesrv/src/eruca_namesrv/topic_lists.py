"""Check the topics of a registration, so that clients get only usable routes.

Pure. An invalid registration is refused as a whole: a route never holds half of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eruca.contract.errors import ValidationError
from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca.contract.names import broker_topic_fault
from eruca.contract.topics import TopicConfig

FAULTS_SHOWN_MAX = 32


def check_topics(topics: Sequence[TopicConfig] | None) -> None:
    """Raise ValidationError if a topic's name or queue count is invalid, or one is listed twice."""
    faults = [
        {"pointer": f"/body/topics/{index}/{field}", "detail": detail}
        for index, field, detail in _faults(topics or ())
    ]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ValidationError(
            f"{faults[0]['pointer']}: {faults[0]['detail']}{more}",
            errors=faults[:FAULTS_SHOWN_MAX],
            fix="correct the topics that `errors` points at; nothing was registered",
        )


def _faults(topics: Sequence[TopicConfig]) -> Iterator[tuple[int, str, str]]:
    seen: set[str] = set()
    for index, config in enumerate(topics):
        fault = broker_topic_fault(config.topic)
        if fault is not None:
            yield index, "topic", f"not a valid topic name: {fault.value.replace('_', ' ')}"
        elif config.topic in seen:
            yield index, "topic", f"{config.topic} is listed twice"
        seen.add(config.topic)
        # 0 is RocketMQ's way to disable sending to, or reading from, a topic.
        if not 0 <= config.read_queue_count <= QUEUE_COUNT_MAX:
            yield index, "read_queue_count", f"not from 0 to {QUEUE_COUNT_MAX}"
        if not 0 <= config.write_queue_count <= QUEUE_COUNT_MAX:
            yield index, "write_queue_count", f"not from 0 to {QUEUE_COUNT_MAX}"
