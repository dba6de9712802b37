"""The broker under made-up requests: no defect, no undocumented answer, no hang.

Schemathesis makes requests from the OpenAPI document, sound ones and unsound ones, and checks each
answer against it; the process is a real one. Batches of records come from a strategy of their own,
since the document can only call them bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.openapi import media_type
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from eruca.contract.wire import RECORDS_MEDIA_TYPE
from support.brokers import batch, record
from support.openapi_documents import made_document
from support.processes import ServiceProcess, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
MadeUp: TypeAlias = Case[Any]

KNOWN_GROUP = "orders"
KNOWN_IDS = [f"known-{number}" for number in range(24)]  # of transactions, and of what waits
WAIT_SECONDS_MAX = 0.05  # of a made-up request; the real limit would take all day
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
    allow_header_conformance,
]

records = st.builds(
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
    st.one_of(st.binary(max_size=200), st.builds(batch, st.lists(records, max_size=40))),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    store = tmp_path_factory.mktemp("fuzz") / "store"
    options = {"PORT": "0", "STORE_DIR": str(store), "NAMESRV_URLS": ""}
    options |= {"SEGMENT_SIZE": str(8 * 1024**2)}
    with running("eruca_broker", {f"ERUCA_BROKER_{k}": v for k, v in options.items()}) as process:
        fill(process.url)
        yield process


def fill(url: str) -> None:
    """Give made-up requests something to find."""
    messages = [
        {"body": {"text": f"flight {n}"}, "tag": "AA", "keys": ["order-17"]} for n in range(20)
    ]
    for queue_id in range(4):
        sent = httpx.post(
            f"{url}/v1/topics/flights/messages?queue_id={queue_id}", json={"messages": messages}
        )
        assert sent.status_code == 201
    for number, message_id in enumerate(KNOWN_IDS):
        message = {"body": {"text": "later"}, "message_id": message_id}
        if number % 2:
            httpx.post(f"{url}/v1/topics/flights/messages", json=message | {"delay_seconds": 9_000})
        else:
            begin = {"topic": "flights", "producer_group": KNOWN_GROUP, "message": message}
            httpx.post(f"{url}/v1/transactions", json=begin)


DOCUMENT = schemathesis.openapi.from_dict(made_document("broker"))
OPERATIONS = [found.ok() for found in DOCUMENT.get_all_operations() if isinstance(found, Ok)]


def modes(operation: Operation) -> list[GenerationMode]:
    """Return both; only the sound one where there is nothing that could be wrong."""
    definition = operation.definition.raw
    takes_something = definition.get("parameters") or "requestBody" in definition
    return list(GenerationMode) if takes_something else [GenerationMode.POSITIVE]


@pytest.mark.parametrize(
    ("operation", "mode"),
    [
        pytest.param(operation, mode, id=f"{operation.label} {mode.value}")
        for operation in OPERATIONS
        for mode in modes(operation)
    ],
)
def test_no_request_does_harm(
    broker: ServiceProcess, operation: Operation, mode: GenerationMode
) -> None:
    @given(
        case=operation.as_strategy(generation_mode=mode),
        known=st.none() | st.sampled_from(KNOWN_IDS),
    )
    @settings(
        max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    def check(case: MadeUp, known: str | None) -> None:
        shorten_waits(case)
        if mode is GenerationMode.POSITIVE and known is not None:
            ask_for(known, case)
        case.call_and_validate(base_url=broker.url, checks=CHECKS, timeout=20)

    check()


def test_after_all_that_the_broker_still_serves(broker: ServiceProcess) -> None:
    """Runs last where tests run in order; the broker must be alive whenever it runs."""
    fill(broker.url)
    pulled = httpx.get(f"{broker.url}/v1/topics/flights/queues/0/messages?offset=0")
    status = httpx.get(f"{broker.url}/v1/status").json()

    assert len(pulled.json()["messages"]) >= 20
    assert (status["bytes_in_flight"], status["held_requests"]) == (0, 0)


def shorten_waits(case: MadeUp) -> None:
    for part in (case.query, case.body):
        if isinstance(part, dict):
            wait_seconds = part.get("wait_seconds")
            if isinstance(wait_seconds, int | float):
                part["wait_seconds"] = min(wait_seconds, WAIT_SECONDS_MAX)


def ask_for(known: str, case: MadeUp) -> None:
    """Let a request be about something that is there: no made-up id ever is."""
    for name in {"transaction_id", "message_id"} & case.path_parameters.keys():
        case.path_parameters[name] = known
        if isinstance(case.body, dict) and isinstance(case.body.get("producer_group"), str):
            case.body["producer_group"] = KNOWN_GROUP
