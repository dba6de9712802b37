"""Names in batches of records: the same records with other names, and right checksums.

A batch in a request has room for the broker's checksum, and no checksum yet; records in an answer
have one, over all their bytes. The body of a message stays byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from eruca.contract.properties import (
    CHECKSUM,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
)
from eruca.contract.records import (
    CHECKSUM_SIZE,
    DamagedRecordError,
    Record,
    decode_record,
    encode_record,
)
from eruca.contract.wire import (
    DELAYED_BATCH_MAGIC,
    MULTI_PULL_MAGIC,
    MalformedRecordsError,
    PulledRecords,
    PullStatus,
    batch_extent,
    batch_position,
    batch_sizes,
    decode_multi_pull,
    decode_pull,
    encode_batch,
    encode_multi_pull_heads,
    encode_pull_head,
    with_delays,
    with_position,
)
from eruca_access.namespaces.json_names import Changes

_CHECKSUM_START = CHECKSUM + NAME_SEPARATOR


def changed_batch(body: bytes, changes: Changes) -> bytes:
    """Return a request's batch, of the same form, with other names; a malformed one unchanged.

    A broker refuses a malformed batch, and a record of another topic than the path's.
    """
    try:
        count, start = batch_extent(body)
        sizes = batch_sizes(body, count)
        made = encode_batch([_changed_unstamped(one, changes) for one in _cut(body, start, sizes)])
        if body.startswith(DELAYED_BATCH_MAGIC):
            return b"".join(with_delays(made))
        position = batch_position(body)
        return made if position is None else b"".join(with_position(made, position))
    except (MalformedRecordsError, DamagedRecordError, ValueError, struct.error):
        return body


def changed_pull(body: bytes, changes: Changes) -> bytes:
    """Return an answer's records, of one queue or of several, with other names."""
    if not body.startswith(MULTI_PULL_MAGIC):
        return _changed_section(decode_pull(body), changes)
    sections = [
        (index, _changed_section(pulled, changes)) for index, pulled in decode_multi_pull(body)
    ]
    head, heads = encode_multi_pull_heads((index, len(block)) for index, block in sections)
    return b"".join(
        (head, *(b"".join(pair) for pair in zip(heads, (b for _, b in sections), strict=True)))
    )


def _changed_section(pulled: PulledRecords, changes: Changes) -> bytes:
    status, following, lowest, highest, sizes, records, _ = pulled
    if status is PullStatus.DAMAGED:
        made = [bytes(records)]  # the fault in words
        encoded_sizes = b""
    else:
        made = [_changed_stamped(one, changes) for one in _cut(bytes(records), 0, sizes)]
        encoded_sizes = struct.pack(f">{len(made)}I", *map(len, made))
    head = encode_pull_head(
        status,
        next_offset=following,
        min_offset=lowest,
        max_offset=highest,
        sizes=encoded_sizes,
        records_size=sum(map(len, made)),
    )
    return b"".join((head, *made))


def _cut(body: bytes, start: int, sizes: Sequence[int]) -> list[bytes]:
    ends = [start]
    for size in sizes:
        ends.append(ends[-1] + size)
    if ends[-1] != len(body):
        raise MalformedRecordsError("the sizes do not add up to the records")
    return [body[begin:end] for begin, end in pairwise(ends)]


def _changed_unstamped(encoded: bytes, changes: Changes) -> bytes:
    record = decode_record(encoded, check_crc=False)
    if record.size != len(encoded):
        raise MalformedRecordsError("a record is not as long as the preamble says")
    topic = changes.topic(record.topic)
    assert topic is not None, "every short name has a whole one"
    properties = _changed_text(record.properties, changes)
    return encode_record(replace(record, topic=topic, properties=properties))


def _changed_stamped(encoded: bytes, changes: Changes) -> bytes:
    record = decode_record(encoded, check_crc=False)
    # A message of the topic that was asked for: it is in the namespace.
    topic = changes.topic(record.topic)
    assert topic is not None, "a broker has answered with a message of another topic"
    text, has_checksum = _without_checksum(record)
    made = replace(record, topic=topic, properties=_changed_text(text, changes))
    return encode_record(made, with_checksum=has_checksum)


def _without_checksum(record: Record) -> tuple[str, bool]:
    text = record.properties
    start = len(text) - CHECKSUM_SIZE
    if start < 0 or not text.startswith(_CHECKSUM_START, start):
        return text, False
    return text[:start], True


def _changed_text(text: str, changes: Changes) -> str:
    """Return the stored text of properties with other names, and nothing else changed."""
    fragments = []
    for fragment in text.split(PROPERTY_SEPARATOR):
        name, separator, value = fragment.partition(NAME_SEPARATOR)
        change = changes.of_property(name) if separator and value else None
        other = value if change is None else change(value)
        if other is not None:
            fragments.append(name + separator + other)
    return PROPERTY_SEPARATOR.join(fragments)
