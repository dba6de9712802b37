"""A broker that must not start: it says why in one line, and leaves the log as it found it."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx

from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_chassis.running.serving import START_EXIT_CODE
from support.answers import check_answers
from support.forked import forked_broker, forked_to_the_end
from support.log_model import LogModel, read_log
from support.waiting import wait_until


def settings(directory: Path, **more: str) -> dict[str, str]:
    chosen = {
        "PORT": "0",
        "STORE_DIR": str(directory),
        "NAMESRV_URLS": "",
        "FLUSH_MODE": "sync",
        "SEGMENT_BYTES": str(64 * 1024),
        **more,
    }
    return {f"ERUCA_BROKER_{name}": value for name, value in chosen.items()}


def fill(directory: Path, by: signal.Signals) -> list[bytes]:
    """Run a broker for 200 messages over several segments; return their bodies.

    What was flushed after the last checkpoint nothing tells from a torn tail, so there is one.
    """
    bodies = [f"{number}:".ljust(900, ".") for number in range(200)]
    with forked_broker(settings(directory)) as process, httpx.Client() as client:
        for body in bodies:
            answer = client.post(
                f"{process.url}/v1/topics/orders/messages?queue_id=0", json={"body": {"text": body}}
            )
            assert answer.status_code == 201
        process.stop(signal.SIGKILL)
    with forked_broker(settings(directory)) as process:
        end = LogModel(read_log(directory)).end_offset
        wait_until(lambda: flushed_offset(directory) >= end)
        process.stop(by)
    return [body.encode() for body in bodies]


def flushed_offset(directory: Path) -> int:
    """Return up to where the log is durable, by the checkpoint; 0 before there is one."""
    checkpoint = read_checkpoint(directory)
    return 0 if checkpoint is None else checkpoint.flushed_offset


def log_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "commitlog").iterdir())}


def test_a_second_broker_on_one_store_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with forked_broker(settings(tmp_path)) as first:
        code, text = forked_to_the_end("eruca_broker", settings(tmp_path))

        assert code == START_EXIT_CODE
        assert f"{tmp_path} is in use by process {first.pid}" in text
        assert len(text.splitlines()) == 1
        assert httpx.get(f"{first.url}/readyz").status_code == 200
        first.stop(signal.SIGKILL)
    with forked_broker(settings(tmp_path)) as third:
        assert third.stop() == 0


def test_a_log_without_its_end_is_refused_and_left_alone_until_it_is_given_up(
    tmp_path: Path,
) -> None:
    bodies = fill(tmp_path, signal.SIGTERM)
    records = [record for record in read_log(tmp_path) if record.topic == "orders"]
    assert [record.body for record in records] == bodies
    last = max((tmp_path / "commitlog").iterdir())
    hit = next(r for r in records if r.log_offset >= int(last.name))
    whole = last.read_bytes()
    torn = hit.log_offset - int(last.name) + 100
    last.write_bytes(whole[:torn])
    before = log_files(tmp_path)

    for _ in range(2):
        code, text = forked_to_the_end("eruca_broker", settings(tmp_path))
        refusal = text.splitlines()[-1]
        assert code == START_EXIT_CODE
        assert f"valid up to {hit.log_offset} " in refusal
        assert "start once with ERUCA_BROKER_CUT_DAMAGE=true" in refusal
        assert log_files(tmp_path) == before

    last.write_bytes(whole)
    with forked_broker(settings(tmp_path)) as process:
        check_answers(process.url, LogModel(read_log(tmp_path)))
        process.stop(signal.SIGKILL)
    last.write_bytes(whole[:torn])
    with forked_broker(settings(tmp_path, CUT_DAMAGE="true")) as process:
        model = LogModel(read_log(tmp_path))
        found = [record.body for record in model.queues["orders", 0]]
        assert found == bodies[: hit.queue_offset]
        check_answers(process.url, model)
        assert process.stop() == 0
    with forked_broker(settings(tmp_path)) as process:
        check_answers(process.url, LogModel(read_log(tmp_path)))


def test_a_flipped_bit_in_flushed_records_is_refused_after_a_kill(tmp_path: Path) -> None:
    fill(tmp_path, signal.SIGKILL)
    last = max((tmp_path / "commitlog").iterdir())
    whole = last.read_bytes()
    hit = whole.index(b"....")
    last.write_bytes(whole[:hit] + b"," + whole[hit + 1 :])
    before = log_files(tmp_path)

    code, text = forked_to_the_end("eruca_broker", settings(tmp_path))

    assert code == START_EXIT_CODE
    assert "acknowledged messages are damaged" in text
    assert log_files(tmp_path) == before


def test_a_log_with_a_segment_missing_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, signal.SIGTERM)
    missing = sorted((tmp_path / "commitlog").iterdir())[1]
    missing.unlink()
    before = log_files(tmp_path)

    code, text = forked_to_the_end("eruca_broker", settings(tmp_path))

    assert code == START_EXIT_CODE
    assert "a file of the log is missing" in text
    assert log_files(tmp_path) == before
