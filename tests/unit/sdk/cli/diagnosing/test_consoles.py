"""The doctor's judgement of a console."""

from __future__ import annotations

import pytest

from eruca.cli.diagnosing.consoles import log_in
from eruca.cli.diagnosing.findings import Verdict


@pytest.mark.parametrize(
    ("url", "has_rules", "verdict", "words"),
    [
        ("http://10.1.2.3:10941", True, Verdict.WARNING, "nobody can log in"),
        ("http://10.1.2.3:10941", None, Verdict.WARNING, "nobody can log in"),
        ("http://10.1.2.3:10941", False, Verdict.OK, "no log-in"),
        ("http://127.0.0.1:10941", True, Verdict.OK, "accepted"),
        ("https://console.example", True, Verdict.OK, "accepted"),
    ],
)
def test_a_console_without_https_on_the_network_lets_nobody_log_in(
    url: str, has_rules: bool | None, verdict: Verdict, words: str
) -> None:
    found = log_in(url, has_rules=has_rules)

    assert found.verdict is verdict
    assert words in found.detail
    assert (found.fix is None) == (verdict is Verdict.OK)
