"""The README's walk through deliveries runs as it is written: a shell, curl, and a real broker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.processes import running

README = Path(__file__).parents[2] / "README.md"
[WALK] = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)


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
            ["/bin/sh", "-eu"], input=walk, capture_output=True, text=True, timeout=60, check=False
        )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    answers = objects(done.stdout)
    nacked = [result for a in answers for result in a.get("results", ())]
    assert [result["outcome"] for result in nacked] == ["retry", "dead_letter"]
    [letter] = next(a["dead_letters"] for a in answers if "dead_letters" in a)
    assert (letter["reason"], letter["last_error"]) == ("nobody_home", "rang twice")
    [last] = answers[-1]["deliveries"]
    assert (last["message"]["body"], last["attempt"]) == ({"text": "for Ben"}, 1)


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects in *text*, which stand one behind the other."""
    decoder = json.JSONDecoder()
    found = []
    position = 0
    while (position := text.find("{", position)) >= 0:
        value, position = decoder.raw_decode(text, position)
        found.append(value)
    return found
