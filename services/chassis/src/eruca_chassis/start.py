"""Refusing to start: the one exception a service may end with."""

from __future__ import annotations


class StartError(Exception):
    """The service cannot start, for a reason its operator can mend.

    Its text is shown on one line, without a traceback, and is all that the operator gets: it names
    what is wrong, where, and what to do.
    """
