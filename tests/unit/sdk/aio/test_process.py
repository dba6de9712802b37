"""The process's id is known without asking the system, after a fork as well."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from eruca.aio.process import process_id

_FORK = """
import os
from eruca.aio.process import process_id
before = process_id()
child = os.fork()
if child == 0:
    os._exit(0 if process_id() == os.getpid() != before else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), process_id() == before)
"""


def test_it_is_the_systems() -> None:
    assert process_id() == os.getpid()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_child_has_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout.split() == ["0", "True"]
