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

_ARGUMENT_HASHES: Final[dict[str, Callable[[Any], int]]] = {
    "string": string_hash,
    "int32": int,
    "int64": long_hash,
    "boolean": lambda value: 1231 if value else 1237,
}


def run_tag_hash(case: dict[str, Any]) -> None:
    tag = case["tag"] or ""

    assert string_hash(tag) == case["hash_int32"]
    assert tags_code(tag) == case["consume_queue_tags_code_int64"]
    assert struct.pack(">q", tags_code(tag)).hex() == case["tags_code_hex"]


def run_select_queue_by_hash(case: dict[str, Any]) -> None:
    value = _ARGUMENT_HASHES[case["argument_type"]](case["argument"])

    assert value == case["hash_int32"]
    assert queue_of_hash(value, case["queue_count"]) == case["expected_index"]


def run_key_hash(case: dict[str, Any]) -> None:
    assert index_hash(case["key"]) == case["expected"]


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "tag_hash": run_tag_hash,
    "select_queue_by_hash": run_select_queue_by_hash,
    "index_file/key_hash": run_key_hash,
}
