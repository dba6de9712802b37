"""The name server under made-up requests: no defect, no undocumented answer, no hang.

What HTTP itself can get wrong is made by mangling sound requests.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from support.forked import forked
from support.fuzzing import Known, Operation, every_operation_of, fuzz
from support.processes import ServiceProcess

ANSWER_SECONDS = 5
KNOWN: Known = {
    "topic": ["flights"],
    "broker_name": ["broker-a"],
    "broker_id": [0],
    "namespace": ["settings"],
    "key": ["colour"],
}

LASTING_BROKER = (  # made-up requests do not know it, and so never remove it
    b'{"cluster":"c","urls":{"default":"http://127.0.0.1:2"},"store_host":"127.0.0.1:2",'
    b'"data_version":1,"topics":[],"expiry_seconds":600}'
)
REGISTRATION = (
    b'{"cluster":"c","urls":{"default":"http://127.0.0.1:1"},"store_host":"127.0.0.1:1",'
    b'"data_version":1,"topics":[{"topic":"flights","read_queue_count":4,"write_queue_count":4,'
    b'"permission":"rw"}]}'
)
JSON_TYPE = {"Content-Type": "application/json"}
JSON = b"Host: localhost\r\nContent-Type: application/json\r\n"
SOUND_REQUESTS = [
    b'GET /v1/topics/a%20b/route HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "x"\r\n\r\n',
    b"GET /v1/topics?limit=5&cursor=YQ HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: 1\r\n\r\n",
    b"HEAD /v1/status HTTP/1.0\r\n\r\n",
    b"PUT /v1/brokers/broker-a/0 HTTP/1.1\r\nHost: localhost\r\n"
    + JSON
    + b"Content-Length: %d\r\n\r\n" % len(REGISTRATION)
    + REGISTRATION,
    b"PUT /v1/kv/a/b HTTP/1.1\r\nHost: localhost\r\n"
    + JSON
    + b'Transfer-Encoding: chunked\r\n\r\nd\r\n{"value":"x"}\r\n0\r\n\r\n',
    b"DELETE /v1/kv/a/b HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[ServiceProcess]:
    # It knows all from the start, or its 503 while it settles would count as defects. Likewise a
    # broker is always live: made-up requests unregister broker-a, or let its registration expire.
    settled = {"ERUCA_NAMESRV_PORT": "0", "ERUCA_NAMESRV_SETTLE_SECONDS": "0"}
    with forked("eruca_namesrv", settled) as process:
        with httpx.Client(base_url=f"{process.url}/v1", headers=JSON_TYPE) as client:
            client.put("/brokers/broker-z/0", content=LASTING_BROKER).raise_for_status()
            client.put("/brokers/broker-a/0", content=REGISTRATION).raise_for_status()
            client.put("/kv/settings/colour", content=b'{"value":"green"}').raise_for_status()
        yield process
        assert process.stop() == 0
        assert [event for event in process.log if event.get("level") == "error"] == []


@every_operation_of("namesrv")
def test_every_answer_is_a_documented_one(
    namesrv: ServiceProcess, operation: Operation, mode: GenerationMode
) -> None:
    fuzz(
        operation,
        mode,
        namesrv,
        known=KNOWN,
        takes_all_that_is_sound=not may_be_refused(operation.label),
    )


@settings(max_examples=300)
@given(
    request=st.sampled_from(SOUND_REQUESTS),
    edits=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),  # where, of the request's length
            st.integers(0, 3),  # how many bytes go
            st.sampled_from([b"", b"\r\n", b"\0", b"%", b"\xff", b":", b" ", b"{", b'"', b"9"]),
        ),
        max_size=4,
    ),
)
def test_a_mangled_request_is_answered_without_a_defect(
    namesrv: ServiceProcess, request: bytes, edits: list[tuple[float, int, bytes]]
) -> None:
    mangled = bytearray(request)
    for where, removed, added in edits:
        start = int(where * len(mangled))
        mangled[start : start + removed] = added

    answer = said_to(namesrv, bytes(mangled))

    # A second answer follows the first one's body, which need not end in a new line.
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
    assert all(200 <= status < 500 or status in (501, 505) for status in statuses)
    refusals = [status for status in statuses if status >= 400]
    assert answer.count(b"application/problem+json") == len(refusals)


def said_to(namesrv: ServiceProcess, request: bytes) -> bytes:
    """Send a request, end the connection's sending side, and return all that came back."""
    url = urlsplit(namesrv.url)
    assert url.hostname is not None
    with socket.create_connection((url.hostname, url.port or 80), ANSWER_SECONDS) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while received := connection.recv(65_536):
            answer += received
        return answer


def may_be_refused(label: str) -> bool:
    """Tell where data that fits the schema may be refused all the same.

    Only cursors that were given out are taken; a registration lists no topic twice; and the fuzzer
    sends a percent sign of a path parameter as it is, so that another value arrives.
    """
    return "{" in label or label == "GET /v1/topics"
