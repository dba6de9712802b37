"""The name server under made-up requests: no defect, no undocumented answer, no hang.

Schemathesis makes requests from the OpenAPI document, sound ones and unsound ones, and checks every
answer against it: status, media type, schema, headers; sound data taken and unsound data refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from support.openapi_documents import made_document
from support.processes import ServiceProcess, running

pytestmark = pytest.mark.slow

EXAMPLES = 40  # requests for each operation and mode
ANSWER_SECONDS = 5

SCHEMA = schemathesis.openapi.from_dict(made_document("namesrv"))
OPERATIONS = {
    operation.label: operation
    for operation in (found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok))
}
REQUESTS = [
    (label, mode)
    for label, operation in OPERATIONS.items()
    for mode in GenerationMode
    if mode.is_positive or list(operation.iter_parameters()) or operation.body
]
RULES_BEYOND_THE_SCHEMA = {  # where sound data may be refused, for what a schema cannot say
    "GET /v1/topics",  # only cursors that were given out
    "GET /v1/topics/{topic}/route",  # longer names only with a prefix
    "PUT /v1/brokers/{broker_name}/{broker_id}",  # no topic twice; an address with a port
}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[ServiceProcess]:
    with running("eruca_namesrv", {"ERUCA_NAMESRV_PORT": "0"}) as process:
        yield process
        assert process.stop() == 0
        assert [event for event in process.log if event.get("level") == "error"] == []


@pytest.mark.parametrize(("label", "mode"), REQUESTS)
def test_every_answer_is_a_documented_one(
    namesrv: ServiceProcess, label: str, mode: GenerationMode
) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def ask(case: Case[Any]) -> None:
        wait_no_longer_than_a_moment(case)
        excluded: list[CheckFunction] = []
        if label in RULES_BEYOND_THE_SCHEMA:
            excluded.append(positive_data_acceptance)
        case.call_and_validate(
            base_url=namesrv.url, timeout=ANSWER_SECONDS, excluded_checks=excluded
        )

    ask()


def wait_no_longer_than_a_moment(case: Case[Any]) -> None:
    """Make a sound ``wait_seconds`` short: the waits themselves are tested elsewhere."""
    seconds = case.query.get("wait_seconds") if case.query else None
    if isinstance(seconds, int | float) and 0 < seconds <= 30:
        case.query["wait_seconds"] = 0.001
