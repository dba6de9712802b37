"""This process's id, without a system call for each question.

A system call takes as long as everything else that a request asks about its owner. The id changes
only by a fork, and Python tells the child of it.
"""

from __future__ import annotations

import os

_id = os.getpid()


def process_id() -> int:
    """Return the id of this process, also in the child of a fork."""
    return _id


def _note() -> None:
    global _id  # noqa: PLW0603 - the process has only one
    _id = os.getpid()


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_note)
