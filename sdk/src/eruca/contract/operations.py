"""JSON models of the operator's routes, which every service has."""

from __future__ import annotations

from typing import Literal

from eruca.contract.fields import Answer


class Health(Answer):
    """The service's health."""

    status: Literal["ok", "ready"]


class ProblemKind(Answer):
    """One kind of problem."""

    code: str
    title: str
    status: int
    retryable: bool
    description: str
    fix: str | None
