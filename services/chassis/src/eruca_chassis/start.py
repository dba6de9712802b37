"""The exception with which a service refuses to start."""

from __future__ import annotations


class StartError(Exception):
    """The service cannot start, for a reason that its operator can fix.

    Its text is printed on one line, without a traceback, and is all that the operator sees: it
    says what is wrong, where, and what to do.
    """
