"""Keys and TLS files of the data source, on the driver and in a worker's process of its own."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType

from eruca.exporting.errors import OptionError, RefusedError, UnavailableError
from pyspark_eruca import DefaultSource
from pyspark_eruca.replay_options import ReplayOptions
from pyspark_eruca.replay_sender import ReplaySender
from pyspark_eruca.replayed import replay_digest
from pyspark_eruca.table import TableReader
from support.authority import Authority, Pair
from support.export_service import ExportService, Fault, Refusal, serving_exports
from support.rules import key_of

FIRST, SECOND = key_of("user:spark"), key_of("user:spark", 1)
ROWS = 500
ORIGIN = {"topic": "orders", "broker_name": "broker-a", "queue_id": 0}
SCHEMA = StructType().add("queue_offset", StringType())
WORKER = """
import pickle, sys
reader, partition = pickle.load(sys.stdin.buffer)
print(sum(batch.num_rows for batch in reader.read(partition)))
"""
MINE = ("ERUCA_API_KEY", "ERUCA_API_KEY_FILE", "ERUCA_TOKEN_PROVIDER", "ERUCA_TLS_CA_FILE")


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MINE:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{FIRST}\n")
    return path


@contextmanager
def served(pair: Pair | None = None, client_ca: Path | None = None) -> Iterator[ExportService]:
    """Serve rows to those who have the first key; over TLS with *pair*."""
    service = ExportService(key=FIRST).hold("orders", {0: ROWS})
    if pair is not None:
        service.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        service.tls.load_cert_chain(pair.cert, pair.key)
        if client_ca is not None:
            service.tls.verify_mode = ssl.CERT_REQUIRED
    with serving_exports(service) as running:
        yield running


def reader_of(service: ExportService, **options: str) -> TableReader:
    given = {"url": service.url, "topic": "orders", "columns": "queue_offset"}
    source = DefaultSource({**given, "retrySeconds": "0.01", **options})
    source.schema()
    reader = source.reader(SCHEMA)
    assert isinstance(reader, TableReader)
    return reader


def read(reader: TableReader) -> int:
    [partition] = reader.partitions()
    return sum(batch.num_rows for batch in reader.read(partition))


def pickled(sent: object) -> bytes:
    """Return what Spark sends to executors."""
    made: bytes = cloudpickle.dumps(sent)  # type: ignore[no-untyped-call]  # it has no types
    return made


def read_in_worker(reader: TableReader, **environment: str) -> subprocess.CompletedProcess[str]:
    """Read as an executor does: in another process, with an environment of its own."""
    [partition] = reader.partitions()
    sent = pickled((reader, partition))
    assert FIRST.encode() not in sent
    inherited = {name: text for name, text in os.environ.items() if name not in MINE}
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", WORKER],
        input=sent,
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def test_a_key_file_serves_the_plan_the_rows_and_a_worker(key_file: Path) -> None:
    with served() as service:
        reader = reader_of(service, apiKeyFile=str(key_file))
        assert read(reader) == ROWS
        worker = read_in_worker(reader)

    assert (worker.stdout, worker.stderr) == (f"{ROWS}\n", "")


def test_a_worker_has_the_key_of_its_own_environment(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERUCA_API_KEY", FIRST)
    with served() as service:
        reader = reader_of(service)
        assert read_in_worker(reader, ERUCA_API_KEY_FILE=str(key_file)).stdout == f"{ROWS}\n"
        stranger = read_in_worker(reader)

    assert stranger.returncode != 0
    assert "RefusedError: GET /v1/exports/orders/records answered 401" in stranger.stderr


def test_a_key_that_changes_while_a_job_runs_is_read_again(key_file: Path) -> None:
    with served() as service:
        reader = reader_of(service, apiKeyFile=str(key_file))
        service.key = SECOND
        with pytest.raises(RefusedError, match="answered 401: unauthenticated"):
            read(reader)
        key_file.write_text(SECOND)

        assert read(reader) == ROWS


def test_a_key_that_changes_while_it_is_refused_is_tried_once_more(key_file: Path) -> None:
    with served() as service:
        reader = reader_of(service, apiKeyFile=str(key_file))
        service.key = SECOND
        service.on_stranger = lambda: _rotate(key_file)
        before = len(service.requests)

        assert read(reader) == ROWS

    assert len(service.requests) == before + 2


def test_a_refused_key_is_not_tried_again(key_file: Path) -> None:
    with served() as service:
        service.key = SECOND

        with pytest.raises(RefusedError, match="answered 401: unauthenticated"):
            reader_of(service, apiKeyFile=str(key_file))

    assert len(service.requests) == 1


def test_an_authority_from_a_file_is_trusted_on_the_driver_and_in_a_worker(
    tmp_path: Path, key_file: Path
) -> None:
    authority = Authority(tmp_path)
    with served(authority.pair("127.0.0.1")) as service:
        reader = reader_of(service, apiKeyFile=str(key_file), caFile=str(authority.ca_file))
        worker = read_in_worker(reader)
        assert (worker.stdout, worker.stderr) == (f"{ROWS}\n", "")


def test_a_worker_trusts_the_authority_of_its_own_environment(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    monkeypatch.setenv("ERUCA_TLS_CA_FILE", str(authority.ca_file))
    with served(authority.pair("127.0.0.1")) as service:
        reader = reader_of(service, apiKeyFile=str(key_file))
        right = read_in_worker(reader, ERUCA_TLS_CA_FILE=str(authority.ca_file))
        wrong = read_in_worker(reader, ERUCA_TLS_CA_FILE=str(foreign.ca_file))

    assert right.stdout == f"{ROWS}\n"
    assert "UnavailableError" in wrong.stderr
    assert "CERTIFICATE_VERIFY_FAILED" in wrong.stderr


@pytest.mark.parametrize("is_wrong_host", [False, True])
def test_a_server_that_is_not_trusted_gets_no_request(
    tmp_path: Path, key_file: Path, *, is_wrong_host: bool
) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    signer = authority if is_wrong_host else foreign
    with served(signer.pair("other.example" if is_wrong_host else "127.0.0.1")) as service:
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            reader_of(service, apiKeyFile=str(key_file), caFile=str(authority.ca_file))

        assert service.requests == []


def test_a_client_certificate_is_shown(tmp_path: Path, key_file: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.pair("spark", file="client")
    options = {"apiKeyFile": str(key_file), "caFile": str(authority.ca_file)}
    with served(authority.pair("127.0.0.1"), authority.ca_file) as service:
        with pytest.raises(UnavailableError):
            reader_of(service, **options)
        assert service.requests == []

        reader = reader_of(service, **options, certFile=str(mine.cert), keyFile=str(mine.key))
        assert read_in_worker(reader).stdout == f"{ROWS}\n"


def test_a_replay_has_the_key_and_the_authority(tmp_path: Path, key_file: Path) -> None:
    authority = Authority(tmp_path)
    with served(authority.pair("127.0.0.1")) as service:
        given = {"topic": "again", "replay": "one", "namesrv": service.url, "url": service.url}
        given["retrySeconds"] = "0.01"
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            ReplaySender(ReplayOptions.parse(given), [])
        given["caFile"] = str(authority.ca_file)
        with pytest.raises(RefusedError, match="answered 401"):
            ReplaySender(ReplayOptions.parse(given), [])
        given["apiKeyFile"] = str(key_file)
        sender = ReplaySender(ReplayOptions.parse(given), [])
        sender.add({**ORIGIN, "queue_offset": 0, "body": b"a"})
        sender.flush()
        sender.close()

    message_id = replay_digest("one", "orders/broker-a/0/0").hex().upper()
    assert sender.sent == 1
    assert service.requests[1:] == [
        "/v1/topics/again/route?require_settled=true",
        f"/v1/topics/again/messages?key={message_id}&limit=64",
        "/v1/topics/again/messages?queue_id=0",
    ]


@pytest.mark.parametrize(
    "broken", [f"{FIRST} {FIRST}", f"{FIRST}\nsecond", FIRST * 200, f"{FIRST}é", ""]
)
def test_a_bad_key_file_is_named_and_its_content_is_not(key_file: Path, broken: str) -> None:
    key_file.write_text(broken)
    with served() as service:
        with pytest.raises(OptionError) as caught:
            reader_of(service, apiKeyFile=str(key_file))
        assert service.requests == []

    assert str(key_file) in str(caught.value)
    assert FIRST[:20] not in f"{caught.getrepr(style='long')}{caught.value.__cause__!r}"


@pytest.mark.parametrize("is_in_file", [False, True])
def test_no_key_is_in_the_options_the_plan_or_an_error(
    key_file: Path, monkeypatch: pytest.MonkeyPatch, *, is_in_file: bool
) -> None:
    options = {"apiKeyFile": str(key_file)} if is_in_file else {}
    if not is_in_file:
        monkeypatch.setenv("ERUCA_API_KEY", FIRST)
    secret = FIRST.split("_", 2)[2]
    with served() as service:
        reader = reader_of(service, **options)
        assert read(reader) == ROWS
        shown = [repr(vars(reader)), repr(reader.partitions()), *service.requests]
        service.faults.append(Fault(refusal=Refusal(503, "unavailable")))
        for expected in (UnavailableError, RefusedError):
            with pytest.raises(expected) as caught:
                read(reader)
            shown += [str(caught.value), repr(caught.value.__cause__)]
            service.key = SECOND

    assert str(key_file) in shown[0] or not is_in_file
    assert secret not in "".join(shown)
    assert secret.encode() not in pickled(reader)


def _rotate(key_file: Path) -> None:
    key_file.write_text(SECOND)
