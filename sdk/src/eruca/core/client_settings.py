"""A client's settings: from arguments, else from the environment, else defaults.

=========================  =============================================================
ERUCA_NAMESRV_URLS         name servers, separated by ``;``
ERUCA_NETWORK              selects one of a broker's addresses, if it has several
ERUCA_TIMEOUT_SECONDS      timeout of a request that has no timeout of its own
ERUCA_TXN_CHECKER_URLS     transaction checkers, separated by ``;``; default: from name servers
ERUCA_QUERY_URLS           query services, likewise
=========================  =============================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from eruca.contract.errors import ValidationError
from eruca.contract.urls import checked_url
from eruca.core.checked_arguments import check_argument
from eruca.core.checked_numbers import check_count, checked_seconds

NAMESRV_URLS_DEFAULT: Final = "http://127.0.0.1:9876"
NETWORK_DEFAULT: Final = "default"
TIMEOUT_SECONDS_DEFAULT: Final = 3.0  # RocketMQ's mqClientApiTimeout
STANDBY_BYTES_DEFAULT: Final = 1024**3  # a master has the messages behind them in its memory
URL_SEPARATOR: Final = ";"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """A client's settings, validated."""

    namesrv_urls: tuple[str, ...]
    network: str
    timeout_seconds: float
    standby_from_bytes: int = STANDBY_BYTES_DEFAULT

    @classmethod
    def resolve(
        cls,
        environment: Mapping[str, str],
        *,
        namesrv_urls: str | Iterable[str] | None = None,
        network: str | None = None,
        timeout_seconds: float | None = None,
        standby_from_bytes: int | None = None,
    ) -> ClientSettings:
        """Return the settings: from the arguments, else the environment, else the defaults.

        Raises:
            ValidationError: A value is invalid; the error names its source.
        """
        check_argument("network", network, str | None)
        urls, source = namesrv_urls, "namesrv_urls"
        if urls is None:
            urls = environment.get("ERUCA_NAMESRV_URLS") or NAMESRV_URLS_DEFAULT
            source = "ERUCA_NAMESRV_URLS"
        seconds, seconds_source = timeout_seconds, "timeout_seconds"
        if seconds is None:
            text = environment.get("ERUCA_TIMEOUT_SECONDS") or str(TIMEOUT_SECONDS_DEFAULT)
            seconds, seconds_source = _number(text), "ERUCA_TIMEOUT_SECONDS"
        behind = standby_from_bytes
        if behind is None:
            text = environment.get("ERUCA_STANDBY_FROM_BYTES") or str(STANDBY_BYTES_DEFAULT)
            if not (text.isascii() and text.isdigit()):
                raise ValidationError(f"ERUCA_STANDBY_FROM_BYTES: {text!r} is not a number")
            behind = int(text)
        check_count("standby_from_bytes", behind, 0)
        return cls(
            checked_urls(urls, source, "a name server", such_as=NAMESRV_URLS_DEFAULT),
            network or environment.get("ERUCA_NETWORK") or NETWORK_DEFAULT,
            checked_seconds(seconds, seconds_source),
            behind,
        )


def checked_urls(
    urls: str | Iterable[str], source: str, what: str, *, such_as: str
) -> tuple[str, ...]:
    """Return the URLs of services without duplicates; *source* and *what* are for the error."""
    check_argument(source, urls, str | Iterable[str])
    if isinstance(urls, str):
        urls = urls.split(URL_SEPARATOR)
    checked = []
    for part in urls:
        check_argument(source, part, str)
        url = part.strip().rstrip("/")
        if not url:
            continue
        try:
            checked.append(checked_url(url))
        except ValueError as error:
            raise ValidationError(
                f"{source}: {url!r} is not the URL of {what}: {error}",
                fix=f"write scheme, host and port, such as {such_as}; "
                f"separate several by {URL_SEPARATOR!r}",
            ) from None
    if not checked:
        raise ValidationError(
            f"{source}: no URL of {what} is given", fix=f"give one, such as {such_as}"
        )
    return tuple(dict.fromkeys(checked))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValidationError(f"ERUCA_TIMEOUT_SECONDS: {text!r} is not a number") from None
