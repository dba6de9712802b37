"""Brokers that name servers know and that do not answer: what the others say is shown all the same.

Such an answer is not whole, so the command says who is missing, and its exit code is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eruca.cli.command import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eruca.cli.session import Session
    from eruca.contract.errors import ErucaError


def said(
    session: Session, unanswered: Mapping[str, ErucaError], *, is_in_document: bool = True
) -> int:
    """Say which brokers do not answer, and return the exit code.

    Args:
        session: The command's.
        unanswered: How each of them does not, by its name.
        is_in_document: Whether JSON tells them already; a list has no room for them.
    """
    if not (session.is_json and is_in_document):
        for name, error in sorted(unanswered.items()):
            session.say(f"{name} does not answer: {error.detail}")
    return EXIT_FAILED if unanswered else 0


def documents(unanswered: Mapping[str, ErucaError]) -> dict[str, object]:
    """Return them as JSON has them, by broker name."""
    return {name: error.problem() for name, error in sorted(unanswered.items())}
