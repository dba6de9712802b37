"""The examples of README.md and of the guide run as they are written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eruca_testing import RunningCluster
from support.command_line import Eruca
from support.documents import GUIDE, README, Block, examples, name_of, pages
from support.patience import PATIENCE_SECONDS

NAMESRV, BROKER, QUERY = "127.0.0.1:9876", "localhost:10911", "localhost:10931"
GROUP = GUIDE / "groups.md"  # its example runs until a signal
TESTING = GUIDE / "testing.md"  # its example is a test: see testing/test_plugin.py


class Run(NamedTuple):
    """One page's examples, run one after the other against a cluster without topics of others."""

    printed: list[str]  # by each
    eruca: Eruca


def readme(run: Run) -> None:
    python, curl = run.printed
    assert python == "0 order 17\n"
    receipt, found, _, received = objects(curl)
    assert receipt["topic"] == "orders"
    assert [message["body"] for message in found["messages"]] == [{"text": "order 18"}]
    assert received["deliveries"]


def curl(run: Run) -> None:
    created, receipt, read, found, _, at_master = objects("".join(run.printed))
    assert (created["write_queue_count"], receipt["queue_id"]) == (4, 3)
    for answer in (read, found):
        assert [message["body"] for message in answer["messages"]] == [{"json": {"order": 17}}]
    assert run.eruca.bodies("pictures") == ["any bytes"]
    assert at_master["copies"] == 1


def deliveries(run: Run) -> None:
    walk, python = run.printed
    answers = objects(walk)
    nacked = [result for a in answers for result in a.get("results", ())]
    assert [r["outcome"] for r in nacked if "outcome" in r] == ["retry", "dead_letter"]
    [letter] = next(a["dead_letters"] for a in answers if "dead_letters" in a)
    assert (letter["reason"], letter["last_error"]) == ("nobody_home", "rang twice")
    [last] = answers[-1]["deliveries"]
    assert (last["message"]["body"], last["attempt"]) == ({"text": "for Ben"}, 1)
    assert python == ""  # the walk's last lease still holds the message


def idempotent(run: Run) -> None:
    statuses = re.findall(r"^HTTP/1.1 (\d+)", run.printed[0], re.MULTILINE)
    assert statuses == ["201", "201", "422"]
    assert run.printed[0].lower().count("idempotent-replayed: true") == 1
    assert sorted(run.eruca.bodies("mails")) == ["hello", "hello again"]


def python(run: Run) -> None:
    first, ordered, asynchronous = run.printed
    message_id, queue, offset = first.splitlines()[0].rsplit(maxsplit=2)
    assert message_id
    assert first.splitlines()[1:] == ["orders 0 order 17"], (queue, offset)
    assert [line.rsplit(maxsplit=1)[1] for line in ordered.splitlines()] == ["0", "1", "2"]
    assert len({line.rsplit(maxsplit=1)[0] for line in ordered.splitlines()}) == 1
    assert asynchronous


def transactions(run: Run) -> None:
    assert "state='committed', outcome='commit', by='producer'" in run.printed[0]
    assert run.eruca.bodies("orders") == ["order 18"]
    assert run.eruca.json("txn", "list") == []


def delayed(run: Run) -> None:
    assert re.fullmatch(r"the tea is ready 0:00:0[0-9.]+\n", run.printed[0])
    assert run.eruca.json("scheduled", "list") == []


def search(run: Run) -> None:
    message, *life, missing = run.printed[0].splitlines()
    assert message.endswith("{'text': 'order 18'}")
    assert [line.split()[2] for line in life] == ["half", "decided", "stored"]
    assert missing == "may be missing: []"


class Case(NamedTuple):
    """A page: what its examples must have done, and what runs before."""

    check: Callable[[Run], None]
    after: Sequence[Path] = ()  # pages whose examples run before, as a reader has done


CASES = {
    README: Case(readme),
    GUIDE / "curl.md": Case(curl),
    GUIDE / "delayed.md": Case(delayed),
    GUIDE / "deliveries.md": Case(deliveries),
    GUIDE / "idempotent.md": Case(idempotent),
    GUIDE / "python.md": Case(python),
    GUIDE / "search.md": Case(search, after=[GUIDE / "transactions.md"]),
    GUIDE / "transactions.md": Case(transactions),
}
KINDS = {"plain": False, "secure": True}  # as `make up` starts a cluster, and with --secure


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A cluster of each kind, for all pages: a start takes longer than a page."""
    with RunningCluster(txn_checkers=1, queries=1, is_secure=KINDS[request.param]) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RunningCluster) -> RunningCluster:
    """The cluster, without the topics and groups of other pages."""
    eruca = command_of(shared)
    for group in eruca.json("group", "list"):
        eruca("group", "delete", group["group"], "--yes")
    for topic in eruca.json("topic", "list"):
        eruca("topic", "delete", topic, "--yes")
    return shared


def command_of(cluster: RunningCluster) -> Eruca:
    """Return the command line as the one who started the cluster uses it."""
    command = Eruca(cluster.namesrv_urls[0])
    command.environment |= cluster.client_environment
    return command


def test_every_page_with_examples_is_run() -> None:
    assert {page for page in pages() if examples(page)} == {*CASES, GROUP, TESTING}


@pytest.mark.skipif(shutil.which("curl") is None, reason="some examples need curl")
@pytest.mark.parametrize("page", CASES, ids=name_of)
def test_the_examples_of_a_page_do_what_it_says(
    page: Path, cluster: RunningCluster, tmp_path: Path
) -> None:
    case = CASES[page]
    eruca = command_of(cluster)
    eruca("topic", "create", "orders")
    for before in case.after:
        for block in examples(before):
            run(block, cluster, tmp_path)

    printed = [run(block, cluster, tmp_path) for block in examples(page)]

    case.check(Run(printed, eruca))


def test_the_example_of_a_group_ends_well_at_ctrl_c(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    [block] = examples(GROUP)
    eruca = command_of(cluster)
    eruca("topic", "create", "orders")
    eruca("send", "--topic=orders", "--tag=paid", "order 17")
    with start(block, cluster, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1 order 17\n"

        process.send_signal(signal.SIGINT)

        assert process.communicate(timeout=PATIENCE_SECONDS) == ("", "")
    assert process.returncode == 0


def run(block: Block, cluster: RunningCluster, folder: Path) -> str:
    """Run an example to its end and return what it printed."""
    with start(block, cluster, folder) as process:
        printed, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, complaints) == (0, ""), printed
    return printed


def start(block: Block, cluster: RunningCluster, folder: Path) -> subprocess.Popen[str]:
    """Start an example in *folder*, with the cluster's addresses for those of ``make up``."""
    code = block.text
    [broker] = cluster.broker_urls.values()
    for shown, url in zip(
        (NAMESRV, BROKER, QUERY), (*cluster.namesrv_urls, broker, *cluster.query_urls), strict=True
    ):
        # With --secure a URL begins with https://; curl takes one without a scheme for it, too.
        code = code.replace(f"http://{shown}", url)
        code = code.replace(shown, url.partition("//")[2])
    environment = {**os.environ, **cluster.client_environment}
    made = cluster.client_environment.get("CURL_HOME")
    kept = "" if made is None else Path(made, ".curlrc").read_text()
    environment["CURL_HOME"] = str(folder)
    (folder / ".curlrc").write_text(f"{kept}silent\nshow-error\n")  # no progress on stderr
    commands = {
        "python": [sys.executable, "-W", "error", "-u", "-c", code],
        "sh": ["/bin/sh", "-euc", code],
    }
    return subprocess.Popen(
        commands[block.language],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects in *text*, which stand one behind the other."""
    decoder = json.JSONDecoder()
    found = []
    position = 0
    while (position := text.find("{", position)) >= 0:
        value, position = decoder.raw_decode(text, position)
        found.append(value)
    return found
