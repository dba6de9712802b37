"""Vectors of the Java hashes: tags, sharding keys, index keys."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from eruca.contract.hashing import (
    index_hash,
    long_hash,
    queue_of_hash,
    string_hash,
    tags_code,
)
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.selectors import argument_hash, by_hash


def run_tag_hash(case: dict[str, Any]) -> None:
    tag = case["tag"] or ""

    assert string_hash(tag) == case["hash_int32"]
    assert tags_code(tag) == case["consume_queue_tags_code_int64"]
    assert struct.pack(">q", tags_code(tag)).hex() == case["tags_code_hex"]


def run_select_queue_by_hash(case: dict[str, Any]) -> None:
    argument, count = case["argument"], case["queue_count"]
    queues = [MessageQueue("TopicTest", "broker-a", queue_id) for queue_id in range(count)]

    if case["argument_type"] == "int64":
        assert long_hash(argument) == case["hash_int32"]
        assert queue_of_hash(long_hash(argument), count) == case["expected_index"]
        if -(2**31) <= argument < 2**31:
            return  # Java would need a cast to Long; the selector takes it for an int
    else:
        assert case["argument_type"] in ("string", "int32", "boolean")
    assert argument_hash(argument) == case["hash_int32"]
    assert by_hash(queues, argument).queue_id == case["expected_index"]


def run_key_hash(case: dict[str, Any]) -> None:
    assert index_hash(case["key"] or "") == case["expected"]


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "tag_hash": run_tag_hash,
    "select_queue_by_hash": run_select_queue_by_hash,
    "index_file/key_hash": run_key_hash,
}
