"""A headless Chromium, driven through a pipe by its DevTools protocol, its network cut off.

Chromium reads commands from file descriptor 3 and writes answers and events to 4, each a JSON
object with a NUL behind it (``--remote-debugging-pipe``): no port, no driver, no library. Names and
addresses other than the loopback's do not resolve in it; whatever a page asks for is noted.

Source: Chrome DevTools Protocol (Target, Page, Runtime, Network, Log).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

PROGRAMS: Final = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
)
_OPTIONS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # it refuses to run as root with one
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1600",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)
# The pipe's ends are the shell's input and output until it becomes Chromium.
_LAUNCH: Final = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null'
_SECONDS: Final = 120.0  # for anything; a busy machine is slow to start it
_LOOK_MS: Final = 10  # between two looks for a condition
_STATE: Final = """JSON.stringify({
    url: location.href, ready: document.readyState, hidden: document.hidden,
    focused: document.hasFocus(), active: document.activeElement?.cloneNode().outerHTML,
    text: document.body?.innerText.slice(0, 2000)})"""
_MESSAGE_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes; a screenshot is one message


def chromium() -> str | None:
    """Return the path of a Chromium on this machine, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class BrowserError(Exception):
    """Chromium refused a command, or gave it up."""


class Page:
    """One tab: what it asked for, what failed, what it complained about."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._urls: dict[str, str] = {}  # of requests, by their ids
        self._loaded: set[str] = set()  # documents that have loaded, by their loaders' ids
        self._news = asyncio.Event()  # set, and replaced, whenever one has loaded
        self.requested: list[str] = []
        self.failed: list[str] = []  # requests without an answer, and answers that are errors
        self.complaints: list[str] = []  # on the console: errors, warnings, exceptions

    async def open(self, url: str) -> None:
        """Go to *url* and return once that page has loaded.

        An event says which document has loaded. The one of an empty tab may come late, and must
        not be taken for the page's: keys pressed then would meet no script.
        """
        before = frozenset(self._loaded)
        answer = await self.command("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"
        if loader := answer.get("loaderId"):
            await self._until_loaded(lambda loaded: loader in loaded)
        else:  # only the fragment is another: the page has stayed
            await self.command("Page.reload")
            await self._until_loaded(lambda loaded: loaded - before)

    @asynccontextmanager
    async def leaving(self) -> AsyncIterator[None]:
        """Wait behind the block until the page has loaded that it leads to."""
        before = frozenset(self._loaded)
        yield
        await self._until_loaded(lambda loaded: loaded - before)

    async def _until_loaded(self, is_meant: Callable[[set[str]], object]) -> None:
        async with asyncio.timeout(_SECONDS):
            while not is_meant(self._loaded):
                await self._news.wait()

    async def evaluate(self, script: str) -> Any:  # noqa: ANN401  (whatever JSON value)
        """Return what *script*, an expression or a promise, comes to."""
        answer = await self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    async def wait_for(self, condition: str) -> Any:  # noqa: ANN401
        """Return what *condition* comes to, once that is true; it is looked at again and again.

        A timer looks, because a browser may give a page no frames.

        Raises:
            AssertionError: It does not come true; the text says how the page is.
        """
        look = f"const found = {condition}; found ? done(found) : setTimeout(look, {_LOOK_MS})"
        while True:
            try:
                return await self.evaluate(
                    f"new Promise(done => {{ (function look() {{ {look} }})() }})"
                )
            except TimeoutError:
                state = await self.evaluate(_STATE)
                text = f"{condition} did not come true within {_SECONDS:g} s: {state}"
                raise AssertionError(f"{text}; {self.failed}; {self.complaints}") from None
            except BrowserError as error:
                if "navigated" not in str(error) and "context" not in str(error):
                    raise  # else another page has come meanwhile: look there

    async def click(self, selector: str) -> None:
        """Click the element that *selector* finds, once it is there."""
        await self.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def press(self, key: str) -> None:
        """Press and release a key, by the text that it makes or its name, such as Enter."""
        text = {"Enter": "\r"}.get(key, key)
        await self.command("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        await self.command("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def text(self, selector: str) -> str:
        """Return the text of the element that *selector* finds, once it has one."""
        found = f"document.querySelector({json.dumps(selector)})?.textContent"
        return str(await self.wait_for(found))

    async def close(self) -> None:
        """Close the tab, and its connections with it."""
        target = (await self.command("Target.getTargetInfo"))["targetInfo"]["targetId"]
        await self._browser.command("Target.closeTarget", targetId=target)

    async def screenshot(self) -> str:
        """Return a picture of the page: a PNG in Base64."""
        return str((await self.command("Page.captureScreenshot", format="png"))["data"])

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401
        """Send a command of the protocol and return its answer."""
        return await self._browser.command(method, session=self._session, **parameters)

    def take(self, method: str, event: dict[str, Any]) -> None:
        """Note an event."""
        match method:
            case "Page.lifecycleEvent" if event["name"] == "load":
                self._loaded.add(event["loaderId"])
                self._news.set()
                self._news = asyncio.Event()
            case "Network.requestWillBeSent":
                self._urls[event["requestId"]] = event["request"]["url"]
                self.requested.append(event["request"]["url"])
            case "Network.loadingFailed":
                url = self._urls.get(event["requestId"], "?")
                self.failed.append(f"{url}: {event['errorText']} {event.get('blockedReason', '')}")
            case "Network.responseReceived" if event["response"]["status"] >= 400:
                self.failed.append(f"{event['response']['url']}: {event['response']['status']}")
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(event["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if event["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(event["args"]))
            case "Log.entryAdded" if event["entry"]["level"] in ("error", "warning"):
                self.complaints.append(json.dumps(event["entry"]))


class Browser:
    """A running Chromium; made by :func:`browsing`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._reading = asyncio.create_task(self._read())

    async def new_page(self) -> Page:
        """Return an empty tab, in which everything is noted."""
        target = (await self.command("Target.createTarget", url="about:blank"))["targetId"]
        attached = await self.command("Target.attachToTarget", targetId=target, flatten=True)
        session = attached["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.command(f"{domain}.enable")
        await page.command("Page.setLifecycleEventsEnabled", enabled=True)
        # Keys need a page in focus, and a tab that closes gives the focus to any other.
        await page.command("Emulation.setFocusEmulationEnabled", enabled=True)
        return page

    async def command(
        self,
        method: str,
        session: str | None = None,
        **parameters: Any,  # noqa: ANN401  (the protocol's)
    ) -> dict[str, Any]:
        """Send a command of the protocol and return its answer."""
        number = len(self._answers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        answer = await asyncio.wait_for(self._answers[number], _SECONDS)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def close(self) -> None:
        """End the process and all that it has started."""
        try:
            await self.command("Browser.close")
            await asyncio.wait_for(self._process.wait(), _SECONDS)
        finally:
            # Its group is its session's: Debian's command is a script around the program.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        reader = self._process.stdout
        while True:
            try:
                message = json.loads((await reader.readuntil(b"\0"))[:-1])
            except asyncio.IncompleteReadError:
                break
            if "id" not in message:
                self._event(message)
            elif not (answer := self._answers[message["id"]]).done():  # else nobody waits any more
                answer.set_result(message)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("Chromium has ended"))

    def _event(self, message: dict[str, Any]) -> None:
        if page := self._pages.get(message.get("sessionId", "")):
            page.take(message["method"], message["params"])


@asynccontextmanager
async def browsing(program: str) -> AsyncIterator[Browser]:
    """Yield a Chromium with a profile of its own, which is removed with it."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _LAUNCH,
            program,
            *_OPTIONS,
            f"--user-data-dir={profile}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_MESSAGE_SIZE_MAX,
            start_new_session=True,
        )
        browser = Browser(process)
        try:
            yield browser
        finally:
            await browser.close()
