"""Docstrings as the site shows them: roles of Sphinx become Markdown.

The source names things by roles, ``:class:`Message```, which editors and readers know. Markdown has
no such thing. A public name becomes a link to its place in the reference, any other stays a name.
"""

from __future__ import annotations

import re
from typing import Any, Final

from griffe import Extension, Object

import eruca

_ROLE: Final = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")
_LITERAL: Final = re.compile(r"^::$|:(?=:$)", re.MULTILINE)  # what announces an indented block


class MarkdownDocstrings(Extension):
    """Rewrites each docstring once it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:  # noqa: ANN401 - as Griffe has it
        """Rewrite the docstring of *obj*, if it has one."""
        if obj.docstring is not None:
            text = _LITERAL.sub("", obj.docstring.value)
            obj.docstring.value = _ROLE.sub(_named, text)


def _named(role: re.Match[str]) -> str:
    name = role[1].removeprefix("eruca.")
    first = name.partition(".")[0]
    shown = role[1].rpartition(".")[2] if "~" in role[0] else name
    if first not in eruca.__all__:
        return f"`{shown}`"
    place = first if first.startswith("Async") else name  # the members stand at the twin's
    return f"[`{shown}`][eruca.{place}]"
