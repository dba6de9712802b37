"""A person who has never seen the console: finds things by role and name, and notes each act.

The names are those that assistive technology gets, so nothing is used that a person could not see
or hear. An act happens by the mouse in the middle of what it is about, and fails if something else
is in front of it.

Source: Chrome DevTools Protocol (Accessibility, DOM, Input); S. Card, T. Moran and A. Newell, "The
Keystroke-Level Model for User Performance Time with Interactive Systems" (CACM 23, 1980).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from eruca_console.shell.languages import translations_of
from support.browser import BrowserError, Page
from support.waiting import until_told

KEY_SECONDS: Final = 0.28  # of somebody who is no typist
POINT_SECONDS: Final = 1.1
CLICK_SECONDS: Final = 0.2  # press and release
TURN_SECONDS: Final = 0.4  # from the mouse to the keys, or back
DECIDE_SECONDS: Final = 1.35
LOOK_SECONDS: Final = 3.0  # at a page that is new to somebody; not of the model
_READ: Final = """(heading, text, row) => {
    const said = (one) => one.textContent.trim().replace(/\\s+/g, " ");
    const has = (one) => one && one.checkVisibility() && said(one).includes(text);
    if (!heading) return has(document.querySelector("main"));
    const all = (selector) => [...document.querySelectorAll(selector)];
    if (all("dt").some((one) => said(one) === heading && has(one.nextElementSibling))) return true;
    return all("thead th").filter((one) => said(one) === heading).some((one) =>
        [...one.closest("table").tBodies[0].rows]
            .filter((line) => !row || [...line.cells].some((cell) => said(cell) === row))
            .some((line) => has(line.cells[one.cellIndex])));
}"""
_CLICKED: Final = DECIDE_SECONDS + POINT_SECONDS + CLICK_SECONDS


@dataclass(frozen=True, slots=True)
class Act:
    """One act of a person.

    Attributes:
        kind: One of ``follow``, ``open_row``, ``push``, ``type``, ``tick``, ``read``.
        name: What it is about, as the page calls it.
        text: What is typed or read; empty: nothing.
        row: The row in which something is read; empty: any.
        seconds: The time that it takes, by the model.
    """

    kind: str
    name: str
    text: str
    row: str
    seconds: float


class Stranger:
    """A person at a browser.

    Args:
        page: An open page.
        language: The language of the pages.
    """

    def __init__(self, page: Page, language: str) -> None:
        self._page = page
        self._texts = translations_of(language)
        self.acts: list[Act] = []

    @property
    def seconds(self) -> float:
        """The time that the acts take, by the model, with a look at the page before them."""
        return LOOK_SECONDS + sum(act.seconds for act in self.acts)

    async def follow(self, text: str) -> None:
        """Follow a link; a *text* of the pages is translated."""
        await self._click("link", self._said(text), is_leaving=True)
        self._note("follow", self._said(text), seconds=_CLICKED + LOOK_SECONDS)

    async def follow_beginning(self, start: str) -> None:
        """Follow the link whose name has this beginning, such as one with a number behind."""
        name = await until_told(lambda: self._name_of("link", start))
        assert name is not None
        await self._click("link", name, is_leaving=True)
        self._note("follow", name, seconds=_CLICKED + LOOK_SECONDS)

    async def open_row(self, text: str) -> None:
        """Follow the first link of the row of a table that has a cell with this text."""
        script = (
            "[...document.querySelectorAll('tr')].find(row => [...row.cells].some(cell =>"
            f" cell.textContent.trim() === {json.dumps(text)}))?.querySelector('a')"
        )
        await self._page.wait_for(f"!!({script})")
        found = await self._page.command("Runtime.evaluate", expression=script)
        await self._click_object(found["result"]["objectId"], text, is_leaving=True)
        self._note("open_row", text, seconds=_CLICKED + LOOK_SECONDS)

    async def push(self, text: str, *, plural: str = "", count: int = 1) -> None:
        """Push a button that sends a form; a *text* of the pages is translated.

        Args:
            text: The button's, for one thing if it names several.
            plural: The text for several things; empty: it names none.
            count: The number of things.
        """
        name = self._said(text)
        if plural:
            name = self._texts.ngettext(text, plural, count) % {"count": count}
        await self._click("button", name, is_leaving=True)
        self._note("push", name, seconds=_CLICKED + LOOK_SECONDS)

    async def tick(self, text: str) -> None:
        """Tick a box."""
        name = self._said(text)
        await self._click("checkbox", name)
        self._note("tick", name, seconds=_CLICKED)

    async def type(self, typed: str, *, into: str, **values: object) -> None:
        """Type into a field, in place of what it has."""
        name = self._said(into, values)
        await self._click("field", name)
        await self._page.evaluate("document.activeElement.select(); 0")
        await self._page.command("Input.insertText", text=typed)
        assert await self._page.evaluate("document.activeElement.value") == typed
        seconds = _CLICKED + 2 * TURN_SECONDS + KEY_SECONDS * len(typed)
        self._note("type", name, typed, seconds=seconds)

    async def read(
        self, name: str, seen: str = "", *, row: str = "", is_noted: bool = True, **values: object
    ) -> None:
        """Read *seen* below or beside a heading, where it must be visible.

        Args:
            name: The heading of a fact or of a column; empty: it stands anywhere.
            seen: The text, or a part of it.
            row: The text of another cell of the same row; empty: any row.
            is_noted: Whether *seen* is the same in each run, and so is noted.
            values: Those in *seen*.
        """
        heading, text = self._said(name), self._said(seen, values)
        await self._page.wait_for(
            f"({_READ})({json.dumps(heading)}, {json.dumps(text)}, {json.dumps(row)})"
        )
        self._note("read", heading, text if is_noted else "", row, seconds=LOOK_SECONDS)

    def _note(self, kind: str, name: str, text: str = "", row: str = "", *, seconds: float) -> None:
        self.acts.append(Act(kind, name, text, row, seconds))

    def _said(self, text: str, values: Mapping[str, object] | None = None) -> str:
        said = self._texts.gettext(text) if text else ""  # the empty one is the catalogue's head
        return said % values if values else said

    async def _click(self, role: str, name: str, *, is_leaving: bool = False) -> None:
        found = await until_told(lambda: self._found(role, name))
        assert found is not None
        await self._click_object(found, name, is_leaving=is_leaving)

    async def _found(self, role: str, name: str) -> str | None:
        """Return the only element of a role and a name; None: there is none yet."""
        roles = ("textbox", "searchbox", "spinbutton", "combobox") if role == "field" else (role,)
        try:
            root = (await self._page.command("DOM.getDocument", depth=0))["root"]["nodeId"]
            answers = [
                await self._page.command(
                    "Accessibility.queryAXTree", nodeId=root, role=one, accessibleName=name
                )
                for one in roles
            ]
            nodes = [one for answer in answers for one in answer["nodes"] if not one["ignored"]]
            if not nodes:
                return None
            assert len(nodes) == 1, f"{len(nodes)} elements are called {role} {name!r}"
            resolved = await self._page.command(
                "DOM.resolveNode", backendNodeId=nodes[0]["backendDOMNodeId"]
            )
        except BrowserError:
            return None  # another page has come meanwhile
        return str(resolved["object"]["objectId"])

    async def _name_of(self, role: str, start: str) -> str | None:
        root = (await self._page.command("DOM.getDocument", depth=0))["root"]["nodeId"]
        answer = await self._page.command("Accessibility.queryAXTree", nodeId=root, role=role)
        names = [str(one["name"]["value"]) for one in answer["nodes"] if not one["ignored"]]
        return next((name for name in names if name.startswith(start)), None)

    async def _click_object(self, found: str, name: str, *, is_leaving: bool) -> None:
        where: dict[str, Any] = await self._page.command(
            "Runtime.callFunctionOn",
            objectId=found,
            returnByValue=True,
            functionDeclaration=(
                "function () { this.scrollIntoView({block: 'center'});"
                " const box = this.getBoundingClientRect();"
                " const x = box.left + box.width / 2, y = box.top + box.height / 2;"
                " const top = document.elementFromPoint(x, y);"
                " return {x, y, hit: this.contains(top) || !!top?.contains(this)}; }"
            ),
        )
        point = where["result"]["value"]
        assert point["hit"], f"something is in front of {name!r}"
        async with self._page.leaving() if is_leaving else nullcontext():
            for kind in ("mousePressed", "mouseReleased"):
                await self._page.command(
                    "Input.dispatchMouseEvent",
                    type=kind,
                    x=point["x"],
                    y=point["y"],
                    button="left",
                    clickCount=1,
                )
