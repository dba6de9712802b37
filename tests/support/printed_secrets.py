"""Secrets in what the suite prints: a test fails if a service or a client writes a whole key.

Keys and tokens have a form that is found without knowing them. What a test captures is searched
when it ends, whether it passed or not: its own output, the log of services in this process, and
that of a local cluster. The lines of services in processes of their own are searched as they come.
"""

from __future__ import annotations

import os
import re
from typing import IO, Final

import pytest

_SECRET: Final = re.compile(
    r"eruca_[a-z0-9]{4,32}_[A-Za-z0-9_-]{43}"  # an API key
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"  # a token
)
_SHOWN: Final = 16  # characters of a secret that a failure shows


def secrets_in(text: str) -> list[str]:
    """Return the beginnings of all secrets in *text*."""
    return [found[0][:_SHOWN] + "…" for found in _SECRET.finditer(text)]


def check_says_none(text: str, where: str) -> None:
    """Fail if *text*, from *where*, has a secret."""
    found = secrets_in(text)
    assert not found, f"{where} has the secrets {found}"


def check_rest_says_none(pipe: IO[str], where: str) -> None:
    """Fail if what is left in a pipe now has a secret; does not wait for more."""
    descriptor = pipe.fileno()
    os.set_blocking(descriptor, False)
    rest = bytearray()
    try:
        while piece := os.read(descriptor, 65_536):
            rest += piece
    except BlockingIOError:
        pass  # a child of the process has the pipe, too
    check_says_none(rest.decode(errors="replace"), where)


def judge(report: pytest.TestReport) -> None:
    """Make the report of a test a failure if the test has printed a secret."""
    for name, text in report.sections:
        found = secrets_in(text)
        if found:
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid}: {name} has the secrets {found}"
            return
