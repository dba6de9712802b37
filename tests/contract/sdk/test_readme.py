"""The SDK's README: each example runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

from support.in_process_cluster import InProcessCluster
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

README = Path(__file__).parents[3] / "sdk" / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


NO_CHECKER = "cannot receive checks from any transaction checker"  # none runs here
TESTS = Path(__file__).parents[2]
PATIENT = "from support.patience import be_patient\nbe_patient()\n"  # is all that is added


def run(code: str, namesrv_urls: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PATIENT + code],
        env={
            **os.environ,
            "ERUCA_NAMESRV_URLS": ";".join(namesrv_urls),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,  # it imports much, and works
        check=False,
    )


async def test_the_examples_run_one_after_the_other(cluster: InProcessCluster) -> None:
    outputs = []
    for example in EXAMPLES:
        done = await anyio.to_thread.run_sync(run, example, cluster.namesrv_urls)
        told = [line for line in done.stderr.splitlines() if not line.startswith(NO_CHECKER)]
        assert (done.returncode, told) == (0, []), done.stderr
        outputs.append(done.stdout)

    assert "written" in outputs[0]
    assert len(outputs[0].splitlines()) > 1
    assert len(outputs[1].splitlines()) == 1
    assert 1 <= len(outputs[2].splitlines()) <= 5
    assert outputs[3] == "commit True\n"
