"""Dependencies that handlers declare by annotation; ``app.create_app`` provides them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from eruca_txn_checker.checker import TransactionChecker


async def _checker(request: Request) -> TransactionChecker:  # async: a def would run in a thread
    checker: TransactionChecker = request.app.state.checker
    return checker


TheChecker = Annotated[TransactionChecker, Depends(_checker)]
