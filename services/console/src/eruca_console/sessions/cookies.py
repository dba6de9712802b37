"""The cookies of the console.

Over HTTPS the session's cookie is called ``__Host-…``: browsers take it only from this host, only
over HTTPS, and send it to no other host. Over plain HTTP a browser takes no such cookie. There the
name has the port, because browsers send a cookie to all ports of a host: two consoles on one
machine would end each other's sessions. A key over plain HTTP is taken from this machine only; on
the network everybody on the way could read it.

Scripts cannot read the session's cookie (HttpOnly), and no page of another site sends it
(SameSite=Strict). It holds a random number, never the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import cookie_parser

THEME: Final = "eruca-console-theme"
LANGUAGE: Final = "eruca-console-language"
_YEAR_SECONDS: Final = 365 * 86_400


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """The session's cookie.

    Attributes:
        is_secure: Whether browsers use HTTPS.
        port: That of the service; 0: it has none.
    """

    is_secure: bool
    port: int

    @property
    def name(self) -> str:
        """Its name."""
        return "__Host-eruca-console" if self.is_secure else f"eruca-console-{self.port}"

    @property
    def login_name(self) -> str:
        """The name of the cookie that binds a log-in at an issuer to this browser."""
        return f"{self.name}-login"

    def login_set_to(self, state: str) -> str:
        """Return the header's value for the time of a log-in; the issuer sends the browser back."""
        return (
            f"{self.login_name}={state}; Path=/; HttpOnly; SameSite=Lax; Max-Age=600{self._secure}"
        )

    def login_removed(self) -> str:
        """Return the header's value that removes it."""
        return f"{self.login_name}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0{self._secure}"

    def set_to(self, value: str) -> str:
        """Return the header's value that sets it, until the browser is closed."""
        return f"{self.name}={value}; Path=/; HttpOnly; SameSite=Strict{self._secure}"

    def removed(self) -> str:
        """Return the header's value that removes it."""
        return f"{self.name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{self._secure}"

    def kept(self, name: str, value: str) -> str:
        """Return the header's value that keeps a preference for a year."""
        return f"{name}={value}; Path=/; SameSite=Lax; Max-Age={_YEAR_SECONDS}{self._secure}"

    def may_carry_keys(self, host: str) -> bool:
        """Return whether somebody at *host*, as the request names it, may log in with a key."""
        return self.is_secure or is_this_machine(host)

    @property
    def _secure(self) -> str:
        return "; Secure" if self.is_secure else ""


def cookies_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a request's cookies, read as browsers write them.

    Whatever other programs on the same host have set arrives, too, and may be in any form: it must
    not hide the console's own. (``http.cookies`` stops at the first text that it does not know.)
    """
    return cookie_parser(headers.get("cookie", ""))


def is_this_machine(host: str) -> bool:
    """Return whether the value of a header ``Host`` names the browser's own machine."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
