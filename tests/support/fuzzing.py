"""Services under made-up requests: no defect, no undocumented answer, no hang.

Schemathesis makes requests from a service's OpenAPI document, sound ones and unsound ones, and
checks every answer against it: status, media type, schema, headers; unsound data refused. The
document is the one that is kept, or every process that collects tests would make it first. A module
of tests does this for each of a service's operations::

    @every_operation_of("broker")
    def test_every_answer_is_a_documented_one(broker, operation, mode):
        fuzz(operation, mode, broker)

Batches of records come from a strategy of their own, since the document can only call them bytes.

A failure shows what errors the service logged meanwhile, and prints how Hypothesis repeats it.
``ERUCA_FUZZ_EXAMPLES`` makes more or fewer requests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.openapi import media_type
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)

from eruca.contract.limits import WAIT_SECONDS_MAX
from eruca.contract.wire import RECORDS_MEDIA_TYPE
from eruca_chassis.connections.framing import HEAD_SIZE_MAX
from support.brokers import batch, record
from support.openapi_documents import kept_document
from support.processes import ServiceProcess

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
MadeUp: TypeAlias = Case[Any]
Known: TypeAlias = Mapping[str, Sequence[object]]

ANSWER_SECONDS: Final = 20  # a request that takes longer hangs; on a busy machine many take one
_CONFIG: Final = SchemathesisConfig.from_dict(
    {
        # 413, too: unsound data may also be too large.
        "checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}},
        "output": {"sanitization": {"enabled": False}},  # or "key" and "token" are not shown
    }
)
_EXAMPLES: Final = int(os.environ.get("ERUCA_FUZZ_EXAMPLES", "20"))  # of an operation and a mode
_REST_OF_HEAD: Final = 8 * 1024  # bytes of a request's path and headers
_WAIT_SECONDS_MAX: Final = 0.02  # the waits themselves are tested elsewhere

_RECORDS: Final = st.builds(
    record,
    st.sampled_from(["flights", "orders", "ERUCA_SYS_EVENTS"]),
    st.binary(max_size=40),
    queue_id=st.integers(0, 3),
    properties=st.sampled_from(["", "TAGS\x01AA\x02", "KEYS\x01a b\x02p\x01", "\x02\x01"]),
    sys_flag=st.sampled_from([0, 1, 1 | 768, 4, 12, 256]),
    born_timestamp=st.sampled_from([0, 1_700_000_000_000, -1, 2**62]),
)
media_type(
    RECORDS_MEDIA_TYPE,
    st.one_of(st.binary(max_size=200), st.builds(batch, st.lists(_RECORDS, max_size=40))),
)


def every_operation_of(service: str) -> pytest.MarkDecorator:
    """Run a test with every *operation* of a service, in each *mode* there is for it."""
    operations = operations_of(service)
    requests = [(operation, mode) for operation in operations for mode in _modes(operation)]
    return pytest.mark.parametrize(
        ("operation", "mode"),
        requests,
        ids=[f"{operation.label} {mode.value}" for operation, mode in requests],
    )


def operations_of(service: str) -> list[Operation]:
    """Return every operation of a service."""
    document = schemathesis.openapi.from_dict(kept_document(service), config=_CONFIG)
    operations = [found.ok() for found in document.get_all_operations() if isinstance(found, Ok)]
    assert operations, f"{service} has operations"
    return operations


def fuzz(
    operation: Operation,
    mode: GenerationMode,
    service: ServiceProcess,
    *,
    known: Known | None = None,
    takes_all_that_is_sound: bool = False,
    answers_each_item: bool = False,
    wait_seconds_max: float = WAIT_SECONDS_MAX,
) -> None:
    """Make requests of one operation, and check each answer.

    Args:
        operation: From the service's document.
        mode: Sound requests, or unsound ones.
        service: Is asked; the errors it logs are part of a failure's report.
        known: By names of parameters and of a body's fields, values of which something is there:
            what is made up never exists. Some of the sound requests have them.
        takes_all_that_is_sound: Whether a request that fits the document is never refused.
        answers_each_item: Whether an unsound item of a sound list is refused alone, in its place of
            an answer that is 200.
        wait_seconds_max: Limit of the service's held requests.
    """
    excluded: list[CheckFunction] = [] if takes_all_that_is_sound else [positive_data_acceptance]
    if answers_each_item:
        excluded.append(negative_data_rejection)
    choices = {
        name: st.none() | st.sampled_from(list(values)) for name, values in (known or {}).items()
    }

    @settings(max_examples=_EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(
        case=operation.as_strategy(generation_mode=mode),
        chosen=st.fixed_dictionaries(choices if mode.is_positive else {}),
    )
    def ask(case: MadeUp, chosen: dict[str, object]) -> None:
        for part in (case.path_parameters, case.query, case.body):
            if isinstance(part, dict):
                _wait_no_longer_than_a_moment(part, wait_seconds_max)
                part |= {n: v for n, v in chosen.items() if n in part and v is not None}
        if _is_too_long(case):
            return
        case.call_and_validate(
            base_url=service.url, timeout=ANSWER_SECONDS, excluded_checks=excluded
        )

    before = len(service.errors())
    try:
        ask()
    except BaseException:
        sys.stderr.write(_shown(service.errors()[before:]))
        raise


def _shown(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return what a service logged, each traceback once: Hypothesis repeats what fails."""
    different = {event.get("exception", event["event"]): event for event in errors}
    return "".join(
        "\n".join(f"{name}: {value}" for name, value in event.items()) + "\n\n"
        for event in different.values()
    )


def _modes(operation: Operation) -> list[GenerationMode]:
    """Return both; only the sound one where there is nothing that could be wrong."""
    definition = operation.definition.raw
    takes_something = definition.get("parameters") or "requestBody" in definition
    return list(GenerationMode) if takes_something else [GenerationMode.POSITIVE]


def _is_too_long(case: MadeUp) -> bool:
    """Tell what any operation would refuse for its head alone, which no document says of each."""
    query = urlencode(case.query or {}, doseq=True, errors="replace")
    return len(query) > HEAD_SIZE_MAX - _REST_OF_HEAD


def _wait_no_longer_than_a_moment(part: dict[str, Any], limit: float) -> None:
    wait_seconds = part.get("wait_seconds")
    # A wait beyond the limit stays so: it must be refused.
    if isinstance(wait_seconds, int | float) and 0 < wait_seconds <= limit:
        part["wait_seconds"] = _WAIT_SECONDS_MAX
