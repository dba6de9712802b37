"""Type checkers see which functions can be handlers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ("--disable-error-code=empty-body", f"--cache-dir={ROOT / '.mypy_cache' / 'handlers'}")
PROGRAM = """
import eruca

class Billing:
    def bill(self, message: eruca.ReceivedMessage) -> None: ...

def register(consumer: eruca.PushConsumer, other: eruca.AsyncPushConsumer) -> None:
    @consumer.on("orders")
    def plain(message: eruca.ReceivedMessage) -> None: ...
    @other.on("orders", tag="a")
    async def with_context(
        message: eruca.ReceivedMessage, context: eruca.ConsumeContext
    ) -> eruca.ConsumeStatus: ...
    @consumer.on("orders")
    def several(messages: list[eruca.ReceivedMessage]) -> eruca.ConsumeStatus | None: ...
    consumer.subscribe("orders", handler=Billing().bill)
    other.subscribe("orders", handler=lambda message: None)
    @consumer.on("orders")  # wrong
    def nothing() -> None: ...
    @other.on("orders")  # wrong
    async def three(message: eruca.ReceivedMessage, context: object, more: object) -> None: ...
    @consumer.on("orders")  # wrong
    def text(message: eruca.ReceivedMessage) -> str: ...
    @other.on("orders")  # wrong
    async def flag(message: eruca.ReceivedMessage) -> bool: ...
    consumer.subscribe("orders", handler=print)
    consumer.subscribe("orders", handler="bill")  # wrong
    other.subscribe("orders", handler=Billing.bill)  # wrong
"""


def test_mypy_tells_wrong_handlers_and_no_others(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", *OPTIONS, str(program)],
        env={**os.environ, "MYPYPATH": str(ROOT / "sdk" / "src")},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    told = {int(line) for line in re.findall(r"program\.py:(\d+): error", checked.stdout)}
    wrong = {number for number, line in enumerate(PROGRAM.split("\n"), 1) if "# wrong" in line}
    assert told == wrong, checked.stdout + checked.stderr
