"""The desk: it answers a request for a page, in whichever form the request accepts.

A page's URL has three forms: HTML, the list as CSV (``?format=csv``), and a stream of its changes
(``Accept: text/event-stream``). htmx gets the block ``live`` alone.

A caller without a session is sent to the log-in, if the console has rules or the cluster refuses
it. Any other refusal is a page that names what is missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from eruca.contract.errors import (
    ErucaError,
    ForbiddenError,
    InternalError,
    UnauthenticatedError,
    ValidationError,
)
from eruca.contract.errors.shown import shown as shown_text
from eruca_console.core.csv_text import csv_text
from eruca_console.sessions.callers import Caller, Callers
from eruca_console.sessions.cookies import (
    LANGUAGE,
    THEME,
    SessionCookie,
    cookies_of,
)
from eruca_console.shell import headers, live
from eruca_console.shell.forms import form_of
from eruca_console.shell.languages import language_for
from eruca_console.shell.pages import Page, Shown, Visit
from eruca_console.shell.rendering import THEMES, render, render_live

LOGIN_PATH: Final = "/login"
_SEE_OTHER: Final = 303
_UNAVAILABLE: Final = 503  # if a client's own error has no status, such as an unreachable server


class Desk:
    """Answers requests for pages.

    Args:
        callers: Their sessions.
        cookie: The session's cookie.
        streams: Live updates.
        namesrv_urls: The name servers, for texts to copy.
        advertised_url: The URL that browsers use; None: the one of the request.
    """

    def __init__(
        self,
        callers: Callers,
        cookie: SessionCookie,
        streams: live.LiveStreams,
        namesrv_urls: str,
        advertised_url: str | None = None,
    ) -> None:
        self._advertised_url = advertised_url
        self.callers = callers
        self.cookie = cookie
        self._streams = streams
        self._namesrv_urls = namesrv_urls

    def caller_of(self, request: Request) -> Caller:
        """Return who sends a request."""
        cookies = cookies_of(request.headers)
        return self.callers.of(cookies.get(self.cookie.name))

    def own_url(self, request: Request) -> str:
        """Return the URL of this console, as the browser reaches it."""
        scheme = "https" if self.cookie.is_secure else "http"
        return self._advertised_url or f"{scheme}://{request.headers.get('host', '')}"

    async def answer(self, page: Page, request: Request) -> Response:
        """Answer a request for *page*."""
        caller = self.caller_of(request)
        if self.callers.is_over(caller):
            return self._to_login(request)
        try:
            _check_given_once(request)
            visit = self._visit(request, caller)
            if live.MEDIA_TYPE in request.headers.get("accept", ""):
                return await self._live(page, request, visit)
            shown = await page.view(visit)
            if visit.wants_file:
                return _file(shown)
            if "hx-request" in request.headers:
                return self._html(render_live, page, request, visit, shown)
            return self._html(render, page, request, visit, shown)
        except UnauthenticatedError:
            if caller.session_id is not None:
                self.callers.end(caller)
            return self._to_login(request)
        except ErucaError as error:
            return self.error(request, caller, error, page)

    async def act(self, page: Page, request: Request) -> Response:
        """Do what the form of *page* says, as its caller."""
        caller = self.caller_of(request)
        if self.callers.is_over(caller):
            return self._to_login(request)
        assert page.act is not None, "only a page with an act has a route for it"
        try:
            fields = await form_of(request, caller)
            _check_given_once(request)
            visit = self._visit(request, caller)
            shown = await page.act(visit, fields)
            return self._html(render, page, request, visit, shown)
        except UnauthenticatedError:
            if caller.session_id is not None:
                self.callers.end(caller)
            return self._to_login(request)
        except ErucaError as error:
            return self.error(request, caller, error, page)

    def error(
        self, request: Request, caller: Caller, error: ErucaError, page: Page | None = None
    ) -> Response:
        """Return the page of an error, which says what to do; it leads back as *page* does."""
        values = {
            **self._frame(request, caller),
            **({} if page is None else {"section": page.section, "parents": page.parents}),
            "title": error.title,
            "error": error,
            "is_forbidden": isinstance(error, ForbiddenError),
        }
        status = _UNAVAILABLE if error.status == InternalError.status else error.status
        return self.page(request, "error.html", values, status=status)

    def page(
        self, request: Request, template: str, values: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        """Return a page that is no view of the cluster, such as the log-in's."""
        text = render(language_of(request), template, values)
        return HTMLResponse(text, status_code=status, headers=headers.PAGE)

    def plain_values(self, request: Request, caller: Caller, title: str) -> dict[str, Any]:
        """Return what the frame of such a page shows."""
        return {**self._frame(request, caller), "title": title}

    async def _live(self, page: Page, request: Request, visit: Visit) -> Response:
        language = language_of(request)
        client = request.client.host if request.client is not None else ""
        place = visit.caller.session_id or client
        self._streams.begin(place)

        async def fresh() -> str:
            now = self._visit(request, visit.caller)
            shown = await page.view(now)
            return render_live(language, page.template, self._values(page, request, now, shown))

        async def rendered() -> str | None:
            if self.callers.is_over(visit.caller):
                return None
            # Pages of one caller that show the same are rendered once for all.
            key = (str(request.url), language)
            life_seconds = self._streams.period_seconds / 2
            try:
                answered = await visit.caller.shown.get(key, fresh, life_seconds=life_seconds)
            except UnauthenticatedError:
                return None
            return answered.value

        return StreamingResponse(
            self._streams.stream(place, "", rendered),
            media_type=live.MEDIA_TYPE,
            headers={**headers.PAGE, "x-accel-buffering": "no"},
        )

    def _visit(self, request: Request, caller: Caller) -> Visit:
        query = dict(request.query_params)
        return Visit(
            caller,
            dict(request.path_params),
            query,
            datetime.now(UTC),
            self._namesrv_urls,
            wants_file=query.get("format") == "csv",
        )

    def _html(self, how: Any, page: Page, request: Request, visit: Visit, shown: Shown) -> Response:  # noqa: ANN401
        values = self._values(page, request, visit, shown)
        text = how(language_of(request), page.template, values)
        return HTMLResponse(text, headers=headers.PAGE)

    def _values(self, page: Page, request: Request, visit: Visit, shown: Shown) -> dict[str, Any]:
        return {
            **self._frame(request, visit.caller),
            "page": page,
            "section": page.section,
            "title": shown.title,
            "parents": page.parents,
            "recipe": shown.recipe,
            "has_file": shown.table is not None,
            "now": visit.now,
            **shown.values,
        }

    def _frame(self, request: Request, caller: Caller) -> dict[str, Any]:
        cookies = cookies_of(request.headers)
        theme = cookies.get(THEME, "auto")
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return {
            "caller": caller,
            "theme": theme if theme in THEMES else "auto",
            "csrf": caller.csrf_token,
            "here": target,
            "section": "",
            "parents": (),
            "page": None,
            "has_file": False,
        }

    def _to_login(self, request: Request) -> Response:
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        where = f"{LOGIN_PATH}?{urlencode({'next': target})}"
        if "hx-request" in request.headers:  # htmx would put the log-in into the page
            return Response(status_code=200, headers={**headers.PAGE, "hx-redirect": where})
        if live.MEDIA_TYPE in request.headers.get("accept", ""):
            return Response(
                live.event("ended", "the session is over"),
                media_type=live.MEDIA_TYPE,
                headers=headers.PAGE,
            )
        return RedirectResponse(where, status_code=_SEE_OTHER, headers=headers.PAGE)


def language_of(request: Request) -> str:
    """Return the language of a request."""
    cookies = cookies_of(request.headers)
    return language_for(cookies.get(LANGUAGE), request.headers.get("accept-language", ""))


def _check_given_once(request: Request) -> None:
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if count > 1:
            raise ValidationError(
                f"query.{shown_text(name)}: it is given twice", fix="give it once"
            )


def _file(shown: Shown) -> Response:
    assert shown.table is not None, "a view that is asked for a file has one"
    said = shown.table.name if shown.table.is_whole else f"{shown.table.name}-incomplete"
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", said)  # a header is no place for other characters
    return Response(
        csv_text(shown.table.headings, shown.table.rows),
        media_type="text/csv; charset=utf-8",
        headers={
            **headers.PAGE,
            "content-disposition": f'attachment; filename="{name}.csv"',
        },
    )
