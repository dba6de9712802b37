"""A program's first day: what goes wrong is seen without logging being set up, and ends well."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eruca_testing import RunningCluster
from support.command_line import Eruca
from support.patience import PATIENCE_SECONDS

SYNC = """
import sys, time
import eruca

def say(text):
    print(text, flush=True)

with eruca.Client("{url}") as client:
    consumer = client.push_consumer("{group}", start="earliest", concurrency=1)

    @consumer.on("orders")
    def bill(message: eruca.ReceivedMessage) -> None:
        {work}

    consumer.run()
say("stopped")
"""
ASYNC = """
import asyncio, sys
import eruca

def say(text):
    print(text, flush=True)

async def main():
    async with eruca.AsyncClient("{url}") as client:
        consumer = client.push_consumer("{group}", start="earliest", concurrency=1)

        @consumer.on("orders")
        async def bill(message: eruca.ReceivedMessage) -> None:
            {work}

        await consumer.run()
    say("stopped")

asyncio.run(main())
"""
# It hears from standard input when it may end: a signal comes while it has a message in hand.
IN_HAND = 'say("began"); {wait}; say("ended")'
SYNC_WAIT = "sys.stdin.readline()"
ASYNC_WAIT = "await asyncio.to_thread(sys.stdin.readline)"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RunningCluster() as cluster:
        [url] = cluster.namesrv_urls
        Eruca(url)("topic", "create", "orders", "--queue-count=1")
        Eruca(url)("send", "--topic=orders", "order 17")
        yield url


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("program", "wait"), [(SYNC, SYNC_WAIT), (ASYNC, ASYNC_WAIT)])
def test_a_signal_ends_a_program_once_its_handler_has_finished(
    url: str, program: str, wait: str, number: signal.Signals
) -> None:
    group = f"signalled-{number.name}-{'async' if program is ASYNC else 'sync'}"
    work = IN_HAND.format(wait=wait)
    with running(program.format(url=url, group=group, work=work)) as process:
        assert line(process) == "began"
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)  # it waits for the handler
        out, err = process.communicate("go on\n", timeout=PATIENCE_SECONDS)

    assert (out.split(), err) == (["ended", "stopped"], "")
    assert process.returncode == 0
    [lag] = Eruca(url).json("group", "lag", group, "--topic=orders")["queues"]
    assert (lag["committed_offset"], lag["lag"]) == (1, 0)


@pytest.mark.parametrize(("program", "wait"), [(SYNC, SYNC_WAIT), (ASYNC, ASYNC_WAIT)])
def test_a_second_signal_ends_a_program_whose_handler_hangs(
    url: str, program: str, wait: str
) -> None:
    group = f"hanging-{'async' if program is ASYNC else 'sync'}"
    work = IN_HAND.format(wait=wait)
    with running(program.format(url=url, group=group, work=work)) as process:
        assert line(process) == "began"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)  # the first one has been taken
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM


@pytest.mark.parametrize("program", [SYNC, ASYNC])
def test_a_handler_that_raises_is_seen_with_its_traceback_and_what_happens_next(
    url: str, program: str
) -> None:
    group = f"raising-{'async' if program is ASYNC else 'sync'}"
    work = 'say("began"); consumer.stop_soon(); raise LookupError("no such customer")'
    with running(program.format(url=url, group=group, work=work)) as process:
        assert line(process) == "began"
        _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0
    first, *_ = err.splitlines()
    assert "the handler failed at message" in first
    assert "of orders, attempt 1: it will be redelivered after a delay" in first
    assert "Traceback (most recent call last):" in err
    assert "LookupError: no such customer" in err


def test_a_start_that_an_existing_group_does_not_use_is_said_with_the_command_that_moves_it(
    url: str,
) -> None:
    first = f"""
    import eruca
    with eruca.Client("{url}") as client:
        with client.pull_consumer("ledger", topics="orders") as consumer:
            print(len(consumer.poll(wait_seconds=10)))
    """
    with running(first) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (out, err) == ("1\n", "")

    pull = first.replace('topics="orders"', 'topics="orders", start="earliest"')
    with running(pull) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert out == "0\n"
    assert err.startswith("start=earliest is ignored: group ledger already has offsets.")

    pop = f"""
    import eruca
    with eruca.Client("{url}") as client:
        with client.simple_consumer("ledger", "orders", start="earliest") as consumer:
            consumer.receive(wait_seconds=0)
            consumer.receive(wait_seconds=0)
    """
    with running(pop) as process:
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert err.startswith("start=earliest is ignored: group ledger already exists.")
    assert err.count("start=earliest") == 1

    with running(SYNC.format(url=url, group="ledger", work="say('again')")) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        command = told.rpartition("run: ")[2].split()
        assert " ".join(command) == "eruca group reset ledger --topic orders --to earliest"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    Eruca(url)(*command[1:], "--yes")
    with running(SYNC.format(url=url, group="ledger", work="say('again')")) as process:
        assert line(process) == "again"


def test_a_group_that_began_as_is_asked_is_no_news(url: str) -> None:
    program = SYNC.format(url=url, group="steady", work="say('once'); consumer.stop_soon()")
    with running(program) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (out.split(), err) == (["once", "stopped"], "")

    again = program.replace("consumer.run()", "consumer.stop_soon(); consumer.run()")
    with running(again) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (out.split(), err) == (["stopped"], "")


def test_a_consumer_that_is_never_started_is_said_to_be_so(url: str) -> None:
    program = SYNC.format(url=url, group="idle", work="pass")
    with running(program.replace("consumer.run()", "pass")) as process:
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert "consumer of group idle has handlers but was never started: call run()" in err

    with running(program.replace("consumer.run()", "consumer.wait_stopped()")) as process:
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "the consumer has not been started" in err
