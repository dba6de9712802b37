"""Facts in a block of the log besides stored messages: about single messages and about groups."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from eruca.contract.names import EVENTS_TOPIC, OP_HALF_TOPIC
from eruca.contract.properties import TAGS
from eruca.contract.records import decode_record
from eruca_query.core.block_columns import BlockColumns
from eruca_query.core.control_events import control_events_of
from eruca_query.core.control_records import decode_control
from eruca_query.core.group_facts import GroupFact, group_facts_of
from eruca_query.core.life_events import TOLD_PREFIXES, TOLD_TOPICS, LifeEvent, message_event

ROWLESS_TOPICS: Final = frozenset((EVENTS_TOPIC, OP_HALF_TOPIC))
"""Topics whose records are not messages and have no rows."""


class BlockFacts(NamedTuple):
    """The facts of a block, in the log's order."""

    events: list[LifeEvent]
    groups: list[GroupFact]
    unreadable: int  # control records that could not be decoded


def facts_of(block: BlockColumns) -> BlockFacts:
    """Return the facts that *block* reports."""
    events: list[LifeEvent] = []
    groups: list[GroupFact] = []
    unreadable = 0
    for row in _telling_rows(block):
        record = decode_record(block.record(row), check_crc=False)
        if record.topic != EVENTS_TOPIC:
            event = message_event(record)
            events += [event] if event is not None else []
            continue
        try:
            told = decode_control(record.property_map().get(TAGS, ""), record.body)
        except ValueError:
            unreadable += 1
            continue
        if told is not None:
            events += control_events_of(told, record)
            groups += group_facts_of(told, record)
    return BlockFacts(events, groups, unreadable)


def _is_telling(topic: str) -> bool:
    return topic == EVENTS_TOPIC or topic in TOLD_TOPICS or topic.startswith(TOLD_PREFIXES)


def _telling_rows(block: BlockColumns) -> list[int]:
    telling = np.array([_is_telling(name) for name in block.topics.names], np.bool_)
    if not telling.any():
        return []
    rows: list[int] = np.flatnonzero(telling[block.topics.numbers]).tolist()
    return rows
