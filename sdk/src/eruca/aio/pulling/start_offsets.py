"""Find where a consumer starts: at its group's committed offsets, or at its queues' start."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from eruca.contract.errors import NoCommittedOffsetError
from eruca.core.consuming.pull_flow import QueueFlow

if TYPE_CHECKING:
    from eruca.aio.cluster.broker_api import BrokerApi
    from eruca.contract.groups import CommittedOffset


async def find_start_offsets(
    api: BrokerApi, url: str, group: str | None, flows: Iterable[QueueFlow]
) -> list[QueueFlow]:
    """Set the fetch offset, or the fault, of *flows*, which all belong to the broker at *url*.

    A flow that was moved by a seek meanwhile keeps its offset.

    Returns:
        The flows that begin at a committed offset which differs from their start.
    """
    elsewhere = []
    by_topic = groupby(sorted(flows, key=lambda flow: flow.queue), lambda flow: flow.queue.topic)
    for topic, group_of_flows in by_topic:
        epochs = [(flow, flow.epoch) for flow in group_of_flows]
        committed: dict[int, CommittedOffset] = {}
        if group is not None and any(flow.use_committed for flow, _ in epochs):
            answer = await api.group_offsets(url, group, topic)
            committed = {offset.queue_id: offset for offset in answer.offsets}
        ranges: dict[int, tuple[int, int]] = {}
        for flow, epoch in epochs:
            queue_id = flow.queue.queue_id
            known = committed.get(queue_id) if flow.use_committed else None
            offset = None if known is None else known.committed_offset
            is_range_needed = flow.start in ("earliest", "latest") or flow.came_after is not None
            if offset is None and is_range_needed and not ranges:
                queues = (await api.topic_queues(url, topic)).queues
                ranges = {queue.queue_id: (queue.min_offset, queue.max_offset) for queue in queues}
            if offset is None and isinstance(flow.start, datetime):
                offset = (await api.offset_by_time(url, topic, queue_id, flow.start)).offset
            elif offset is None and flow.came_after is not None and flow.start != "earliest":
                since = (await api.offset_by_time(url, topic, queue_id, flow.came_after)).offset
                is_new = since == ranges.get(queue_id, (0, 0))[0]
                offset = since if is_new or flow.start == "latest" else None
            if flow.epoch != epoch:
                continue
            if offset is None and flow.start == "committed":
                flow.fault = NoCommittedOffsetError(
                    f"group {group} has no committed offset in queue {queue_id} of {topic}"
                    f" on {flow.queue.broker_name}",
                    fix="seek, or choose another start, such as earliest",
                )
            elif offset is None:
                begin, end = ranges.get(queue_id, (0, 0))
                flow.fetch_offset = end if flow.start == "latest" else begin
            else:
                flow.fetch_offset = offset
                if known is not None and known.committed_offset is not None:
                    ends = {"earliest": known.min_offset, "latest": known.max_offset}
                    if flow.start != "committed" and ends.get(str(flow.start)) != offset:
                        elsewhere.append(flow)
    return elsewhere
