"""What README.md says runs as it is written, and what RUNNING.md names is there."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.names import ORDERED_TOPICS_NAMESPACE
from eruca_broker.settings import BrokerSettings
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.settings import QuerySettings
from eruca_testing import RunningCluster
from eruca_txn_checker.settings import TxnCheckerSettings
from support import alerts
from support.command_line import Eruca
from support.patience import PATIENCE_SECONDS
from support.processes import running

README = Path(__file__).parents[2] / "README.md"
RUNNING = README.with_name("RUNNING.md").read_text()
CLIENT_VARIABLES = {
    "ERUCA_NAMESRV_URLS",
    "ERUCA_NETWORK",
    "ERUCA_OFFSETS_DIR",
    "ERUCA_QUERY_URLS",
    "ERUCA_TXN_CHECKER_URLS",
}
PACKAGES = {"eruca_namesrv", "eruca_broker", "eruca_txn_checker", "eruca_query", "eruca_postgres"}
[WALK] = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
NAMESRV_URL = "http://127.0.0.1:9876"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the walk needs curl")
def test_the_walk_with_nothing_but_curl_ends_with_the_dead_letter_handed_out(
    tmp_path: Path,
) -> None:
    settings = {
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_STORE_DIR": str(tmp_path),
        "ERUCA_BROKER_NAMESRV_URLS": "",
    }
    with running("eruca_broker", settings) as broker:
        walk = WALK.replace("http://localhost:10911", broker.url)

        done = subprocess.run(
            ["/bin/sh", "-eu"],
            input=walk,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    answers = objects(done.stdout)
    nacked = [result for a in answers for result in a.get("results", ())]
    assert [result["outcome"] for result in nacked] == ["retry", "dead_letter"]
    [letter] = next(a["dead_letters"] for a in answers if "dead_letters" in a)
    assert (letter["reason"], letter["last_error"]) == ("nobody_home", "rang twice")
    [last] = answers[-1]["deliveries"]
    assert (last["message"]["body"], last["attempt"]) == ({"text": "for Ben"}, 1)


def test_every_variable_and_metric_that_running_and_the_alerts_name_is_there() -> None:
    named = set(re.findall(r"\bERUCA_[A-Z_]*[A-Z]\b", RUNNING + alerts.TEXT))
    kinds = (NamesrvSettings, BrokerSettings, TxnCheckerSettings, QuerySettings)
    known = {variable for kind in kinds for variable in kind.variables().values()}
    assert named - known - {ORDERED_TOPICS_NAMESPACE} == CLIENT_VARIABLES

    metrics = set(re.findall(r"\beruca_[a-z_]+\b", RUNNING + alerts.TEXT)) - PACKAGES
    shown = ""
    with RunningCluster(txn_checkers=1, queries=1) as cluster:
        for service in cluster.plan.services:
            shown += httpx.get(f"{service.url}/metrics", trust_env=False).text
    told = set(re.findall(r"^# TYPE (\w+) ", shown, re.MULTILINE))
    assert metrics
    assert metrics <= told


def example(heading: str) -> str:
    """Return the Python example below a heading."""
    _, section = README.read_text().split(f"### {heading}\n")
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def run_example(heading: str, namesrv_url: str) -> str:
    """Run the example below a heading and return what it printed."""
    code = example(heading)
    assert NAMESRV_URL in code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code.replace(NAMESRV_URL, namesrv_url)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_examples_do_what_they_say() -> None:
    with RunningCluster(txn_checkers=1, queries=1) as cluster:
        [url] = cluster.namesrv_urls
        eruca = Eruca(url)
        eruca("topic", "create", "orders")

        decided = run_example("Send in transactions", url)
        delivered = run_example("Deliver later", url)
        delivered_again = run_example("Deliver later", url)
        told = run_example("Find messages, and what befell them", url)

        assert "state='committed', outcome='commit', by='producer'" in decided
        for printed in (delivered, delivered_again):
            assert re.fullmatch(r"the tea is ready 0:00:0[0-9.]+\n", printed)
        message, *life, missing = told.splitlines()
        assert message.endswith("{'text': 'order 18'}")
        assert [line.split()[2] for line in life] == ["half", "decided", "stored"]
        assert missing == "may be missing: []"
        assert eruca.bodies("orders") == ["order 18"]
        assert eruca.json("scheduled", "list") == []
        assert eruca.json("txn", "list") == []


def test_the_example_of_a_group_ends_well_at_ctrl_c() -> None:
    with RunningCluster() as cluster:
        [url] = cluster.namesrv_urls
        Eruca(url)("topic", "create", "orders")
        Eruca(url)("send", "--topic=orders", "--tag=paid", "order 17")
        code = example("Consume as a group").replace(NAMESRV_URL, url)
        with subprocess.Popen(
            [sys.executable, "-W", "error", "-u", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "1 order 17\n"

            process.send_signal(signal.SIGINT)

            assert process.communicate(timeout=PATIENCE_SECONDS) == ("", "")
        assert process.returncode == 0


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects in *text*, which stand one behind the other."""
    decoder = json.JSONDecoder()
    found = []
    position = 0
    while (position := text.find("{", position)) >= 0:
        value, position = decoder.raw_decode(text, position)
        found.append(value)
    return found
