"""Docstrings as the site shows them.

The source names things by roles of Sphinx, ``:class:`Message```, which editors and readers know.
Markdown has no such thing. A public name becomes a link to its place in the reference, any other
stays a name. A field is described by the comment at the end of its line, or by its model's
``Field(description=…)``: in the source that is shorter than a docstring.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from typing import Any, Final

from griffe import Attribute, Class, Docstring, ExprCall, ExprKeyword, Extension, Object

import eruca

_ROLE: Final = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")
_LITERAL: Final = re.compile(r"^::$|:(?=:$)", re.MULTILINE)  # what announces an indented block
_COMMENT: Final = re.compile(r"  # (?!noqa|type:)(.+)$")


class MarkdownDocstrings(Extension):
    """Rewrites docstrings, finds those of fields, and leaves out private bases."""

    def on_class(self, *, cls: Class, **_: Any) -> None:  # noqa: ANN401 - as Griffe has it
        """Leave out the private bases of *cls*."""
        names = [str(base).rpartition(".")[2] for base in cls.bases]
        cls.bases = [b for b, name in zip(cls.bases, names, strict=True) if name[0] != "_"]

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:  # noqa: ANN401
        """Give *attr* a docstring if its line, or its value, describes it."""
        if attr.docstring is None and (text := _comment(attr) or _description(attr)):
            attr.docstring = Docstring(_ROLE.sub(_named, text), parent=attr)

    def on_object(self, *, obj: Object, **_: Any) -> None:  # noqa: ANN401
        """Rewrite the docstring of *obj*, if it has one."""
        if obj.docstring is not None:
            text = _LITERAL.sub("", obj.docstring.value)
            obj.docstring.value = _ROLE.sub(_named, text)


def _comment(attribute: Attribute) -> str:
    lines = attribute.lines
    found = _COMMENT.search(lines[-1]) if lines else None
    return found[1] if found else ""


def _description(attribute: Attribute) -> str:
    if isinstance(attribute.value, ExprCall):
        for argument in attribute.value.arguments:
            if isinstance(argument, ExprKeyword) and argument.name == "description":
                with suppress(ValueError):  # an f-string has no value here
                    return str(ast.literal_eval(str(argument.value)))
    return ""


def _named(role: re.Match[str]) -> str:
    name = role[1].removeprefix("eruca.")
    first = name.partition(".")[0]
    shown = role[1].rpartition(".")[2] if "~" in role[0] else name
    if first not in vars(eruca)["__all__"]:
        return f"`{shown}`"
    place = first if first.startswith("Async") else name  # the members stand at the twin's
    return f"[`{shown}`][eruca.{place}]"
