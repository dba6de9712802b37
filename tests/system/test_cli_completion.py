"""Shell completion of names, by the shells' own protocol, against a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from eruca.cli import completion
from eruca.cli.app import app
from eruca_testing import RunningCluster
from support.command_line import Eruca
from support.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def namesrv_url() -> Iterator[str]:
    with RunningCluster(brokers=2) as cluster:
        url = cluster.namesrv_urls[0]
        command = Eruca(url)
        for topic in ("orders", "order-events", "payments"):
            command("topic", "create", topic)
        for group in ("billing", "audit"):
            command("group", "create", group)
        yield url


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "COMPLETION_SECONDS", PATIENCE_SECONDS)


def completed(environment: dict[str, str]) -> str:
    done = CliRunner().invoke(app, [], prog_name="eruca", env=environment)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout


def in_bash(line: str, namesrv_url: str | None) -> list[str]:
    """Return what bash offers at the end of *line*."""
    environment = {
        "_ERUCA_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    if namesrv_url is not None:
        environment["ERUCA_NAMESRV_URLS"] = namesrv_url
    return completed(environment).split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("eruca topic show ", ["order-events", "orders", "payments"]),
        ("eruca topic show orders", ["orders"]),
        ("eruca topic show o", ["order-events", "orders"]),
        ("eruca topic show x", []),
        ("eruca send --topic pay", ["payments"]),
        ("eruca send -t pay", ["payments"]),
        ("eruca export o", ["order-events", "orders"]),
        ("eruca scheduled list --topic p", ["payments"]),
        ("eruca group lag ", ["audit", "billing"]),
        ("eruca group reset billing --topic p", ["payments"]),
        ("eruca dlq redrive a", ["audit"]),
        ("eruca consume orders --group b", ["billing"]),
        ("eruca pull orders --broker ", ["broker-a", "broker-b"]),
        ("eruca query rebuild --broker broker-b", ["broker-b"]),
        ("eruca query forget broker-", ["broker-a", "broker-b"]),
        ("eruca txn list --group b", []),  # a producer group: brokers list none
    ],
)
def test_bash_is_offered_the_names_that_the_cluster_has(
    namesrv_url: str, line: str, names: list[str]
) -> None:
    assert in_bash(line, namesrv_url) == names


def test_zsh_is_offered_the_same_names(namesrv_url: str) -> None:
    offered = completed(
        {
            "_ERUCA_COMPLETE": "complete_zsh",
            "_TYPER_COMPLETE_ARGS": "eruca topic show ord",
            "ERUCA_NAMESRV_URLS": namesrv_url,
        }
    )

    assert '"orders"' in offered
    assert '"order-events"' in offered
    assert "payments" not in offered


@pytest.mark.parametrize(
    "line", ["eruca --namesrv {} topic show p", "eruca topic show --namesrv {} p"]
)
def test_name_servers_given_on_the_line_are_asked(namesrv_url: str, line: str) -> None:
    assert in_bash(line.format(namesrv_url), "http://127.0.0.1:1") == ["payments"]


def test_system_topics_and_retry_topics_are_not_offered(namesrv_url: str) -> None:
    assert not [name for name in in_bash("eruca topic show ", namesrv_url) if name[0] in "%E"]
