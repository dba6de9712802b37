"""The routes of the log-in: by a key, by a token, or at an issuer; and of the log-out.

An issuer sends the browser back to ``CALLBACK_PATH``, which must be known there.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from eruca.contract.errors import (
    ErucaError,
    ForbiddenError,
    NotFoundError,
    UnauthenticatedError,
    ValidationError,
)
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_console.core.texts import N_
from eruca_console.sessions.cookies import cookies_of
from eruca_console.shell import headers
from eruca_console.shell.desk import LOGIN_PATH, Desk
from eruca_console.shell.forms import form_of, local_path

CALLBACK_PATH: Final = "/login/callback"
_SEE_OTHER: Final = 303


def add_login(router: Router) -> None:
    """Add the routes of the log-in and the log-out to *router*."""

    @router.get(LOGIN_PATH, needs=PUBLIC)
    async def login(request: Request, desk: Part[Desk]) -> Response:
        return _login_page(desk, request, local_path(request.query_params.get("next", "")))

    @router.post(LOGIN_PATH, needs=PUBLIC)
    async def begin_session(request: Request, desk: Part[Desk]) -> Response:
        guest = desk.callers.guest
        try:
            fields = await form_of(request, desk.caller_of(request))
            target = local_path(fields.get("next", [""])[0])
            _check_may_carry_keys(desk, request)
            try:
                caller = await desk.callers.begin(fields.get("key", [""])[0].strip())
            except (UnauthenticatedError, ValidationError) as error:
                return _login_page(desk, request, target, error)
        except ErucaError as error:
            return desk.error(request, guest, error)
        assert caller.session_id is not None
        answer = RedirectResponse(target, status_code=_SEE_OTHER, headers=headers.PAGE)
        answer.headers.append("set-cookie", desk.cookie.set_to(caller.session_id))
        return answer

    @router.get("/login/issuer", needs=PUBLIC)
    async def begin_at_issuer(request: Request, desk: Part[Desk]) -> Response:
        guest, flow = desk.callers.guest, desk.callers.code_flow
        try:
            if flow is None:
                raise NotFoundError("there is no log-in at an issuer here", fix="use a key")
            _check_may_carry_keys(desk, request)
            target = local_path(request.query_params.get("next", ""))
            state, url = await flow.begin(target, desk.own_url(request) + CALLBACK_PATH)
        except ErucaError as error:
            return desk.error(request, guest, error)
        answer = RedirectResponse(url, status_code=_SEE_OTHER, headers=headers.PAGE)
        answer.headers.append("set-cookie", desk.cookie.login_set_to(state))
        return answer

    @router.get(CALLBACK_PATH, needs=PUBLIC)
    async def end_at_issuer(request: Request, desk: Part[Desk]) -> Response:
        guest, flow = desk.callers.guest, desk.callers.code_flow
        state = cookies_of(request.headers).get(desk.cookie.login_name)
        try:
            if flow is None:
                raise NotFoundError("there is no log-in at an issuer here", fix="use a key")
            _check_may_carry_keys(desk, request)
            tokens, target = await flow.finish(state, request.query_params)
            caller = await desk.callers.begin(tokens.access_token, tokens)
        except ErucaError as error:
            return desk.error(request, guest, error)
        assert caller.session_id is not None
        # A page of its own, not a redirect: the issuer has led here, so a browser would not send a
        # cookie that is SameSite=Strict with a redirect.
        values = {**desk.plain_values(request, caller, N_("Logged in")), "target": target}
        answer = desk.page(request, "logged_in.html", values)
        answer.headers.append("set-cookie", desk.cookie.set_to(caller.session_id))
        answer.headers.append("set-cookie", desk.cookie.login_removed())
        return answer

    @router.post("/logout", needs=PUBLIC)
    async def end_session(request: Request, desk: Part[Desk]) -> Response:
        caller = desk.caller_of(request)
        try:
            await form_of(request, caller)
        except ErucaError as error:
            return desk.error(request, caller, error)
        if caller.session_id is not None:
            desk.callers.end(caller)
        answer = RedirectResponse(LOGIN_PATH, status_code=_SEE_OTHER, headers=headers.PAGE)
        answer.headers.append("set-cookie", desk.cookie.removed())
        return answer


def _check_may_carry_keys(desk: Desk, request: Request) -> None:
    if not desk.cookie.may_carry_keys(request.headers.get("host", "")):
        raise ForbiddenError(
            "a key over plain HTTP can be read by everybody on the way",
            fix="open the console by https://, or on the machine that it runs on",
        )


def _login_page(
    desk: Desk, request: Request, target: str, error: ErucaError | None = None
) -> Response:
    caller = desk.caller_of(request)
    values = {
        **desk.plain_values(request, caller, N_("Log in")),
        "target": target,
        "error": error,
        "has_issuer": desk.callers.code_flow is not None,
        "end_url": None if desk.callers.code_flow is None else desk.callers.code_flow.end_url(),
        "may_log_in": desk.cookie.may_carry_keys(request.headers.get("host", "")),
    }
    return desk.page(request, "login.html", values, status=200 if error is None else error.status)
