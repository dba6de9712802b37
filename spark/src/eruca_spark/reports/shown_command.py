"""The command of a report, as a page shows it: copyable, and without secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

HIDDEN: Final = "***"
# Spark hides the values of settings by such names (spark.redaction.regex); "key" only at the end,
# because partition keys and the like are no secrets.
_SECRET: Final = re.compile(
    r"secret|password|passwd|token|credential|access[._-]?key|api[._-]?key|[._-]key$", re.IGNORECASE
)
_IS_A_FILE: Final = re.compile(r"file|path|dir|location$", re.IGNORECASE)
_USER: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s;,@]*@", re.IGNORECASE)
# NAME=VALUE, also as one word with its option (--conf=NAME=VALUE)
_PAIR: Final = re.compile(r"(?P<before>(?:--[\w-]+=)?(?P<name>[^=\s/?]+)=)(?P<value>.*)", re.DOTALL)
_QUERY: Final = re.compile(r"(?P<name>[?&][^=&#\s;]+)=(?P<value>[^&#\s;]*)")


def without_secrets(text: str) -> str:
    """Return *text* without the users and secrets of the URLs in it."""
    text = _USER.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _QUERY.sub(
        lambda found: f"{found['name']}={HIDDEN if _is_secret(found['name']) else found['value']}",
        text,
    )


def shown_command(arguments: Sequence[str]) -> str:
    """Return the command line of ``eruca-spark`` with *arguments*, quoted for a shell."""
    return shlex.join(["eruca-spark", *map(_shown, arguments)])


def _shown(argument: str) -> str:
    text = without_secrets(argument)
    pair = _PAIR.fullmatch(text)
    if pair is not None and _is_secret(pair["name"]):
        return f"{pair['before']}{HIDDEN}"
    return text


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _IS_A_FILE.search(name)
