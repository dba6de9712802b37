"""The search for secrets finds them, and makes a test fail that has printed one."""

from __future__ import annotations

import os

import pytest

from support.printed_secrets import check_rest_says_none, judge, secrets_in
from support.rules import key_of
from support.token_issuers import issuing

KEY = key_of("user:a")


def report_with(text: str) -> pytest.TestReport:
    return pytest.TestReport(
        "a", ("a", 1, "a"), {}, "passed", None, "teardown", [("Captured stdout call", text)]
    )


@pytest.mark.parametrize("text", [KEY, f"Bearer {KEY}", f'{{"a":"{KEY}"}}', f"https://u:{KEY}@h/"])
def test_a_key_is_found_wherever_it_stands(text: str) -> None:
    report = report_with(text)

    judge(report)

    assert report.outcome == "failed"
    assert KEY not in str(report.longrepr)


def test_a_token_is_found() -> None:
    with issuing() as issuer:
        assert len(secrets_in(f"token={issuer.token()}&")) == 1


@pytest.mark.parametrize("text", ["", "eruca_broker", KEY[:-1], KEY.split("_")[1], "eyJhbGci"])
def test_what_is_no_secret_is_none(text: str) -> None:
    report = report_with(text)

    judge(report)

    assert report.outcome == "passed"


def test_the_rest_of_a_pipe_is_searched_without_waiting() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        os.write(writing, f"log {KEY}\n".encode())
        with pytest.raises(AssertionError, match="has the secrets"):
            check_rest_says_none(pipe, "the log")
        check_rest_says_none(pipe, "the log")
        os.close(writing)
