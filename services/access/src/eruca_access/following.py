"""Follow the policy at the controllers, and keep the last one on the disk.

::

                    200, a greater number                  no controller answers
      no rules ───────────────────────────► in force ◄──────────────────────────► in force, aging
    (not ready)  or the file on the disk       │ ▲
                                               └─┘ 200, a greater number

A request is held at a controller until the policy changes. So a change is known at once. A lower
number than the one in force is refused: it means that the controllers' store was restored from an
older copy, in which a revoked key may still be valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from eruca.contract.errors import ErucaError, NotReadyError
from eruca.contract.policies import PolicyView
from eruca.services.http import HttpTransport, problem_error
from eruca_access.kept_policy import KeptPolicy
from eruca_access.kept_source import KeptSource, OlderPolicyError
from eruca_chassis.loops import BackgroundLoop

WAIT_SECONDS: Final = 30.0  # for which a request is held
ANSWER_SECONDS: Final = 10.0  # beyond that
RETRY_SECONDS: Final = 1.0
_TARGET: Final = "/v1/policy"


class FollowingSource(KeptSource):
    """The rules as controllers have them.

    Args:
        urls: The controllers'.
        path: The file that keeps the last policy.
        transport: Makes the transport for requests, with the service's own credentials.
    """

    def __init__(
        self, urls: Sequence[str], path: Path, transport: Callable[[], HttpTransport]
    ) -> None:
        assert urls
        super().__init__(path)
        self._urls = list(urls)  # the one that answered last comes first
        self._make_transport = transport
        self._transport: HttpTransport | None = None
        self._loop = BackgroundLoop("policy", self._step, period_seconds=0)

    def missing(self) -> NotReadyError:
        """Return the error for requests while there are no rules."""
        why = f": {self.fault}" if self.fault else ""
        return NotReadyError(
            f"this service has never had rules{why}",
            fix="start a controller of ERUCA_CONTROLLER_URLS, and give this service a key that it "
            "accepts in ERUCA_API_KEY_FILE",
            retry_after_seconds=RETRY_SECONDS,
        )

    async def start(self) -> None:
        """Begin to follow the controllers."""
        self._transport = self._make_transport()
        self._loop.start()

    async def stop(self) -> None:
        """Stop following them."""
        await self._loop.stop(within_seconds=0)  # a held request need not be waited for
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    async def refresh(self) -> None:
        """Do nothing: the loop follows the controllers."""

    async def _step(self) -> float:
        """Ask the controllers once; return the seconds to pause."""
        assert self._transport is not None
        faults = []
        for url in list(self._urls):
            try:
                await self._ask(self._transport, url)
            except ErucaError as error:
                faults.append(f"{url}: {error.detail}")
            except OlderPolicyError as error:
                faults.append(f"{url}: {error}")
            except ValidationError:
                faults.append(f"{url}: its answer is no policy that this version knows")
            else:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return 0
        self.fail("; ".join(faults))
        return RETRY_SECONDS

    async def _ask(self, transport: HttpTransport, url: str) -> None:
        known = [] if self.newest is None else [("if-none-match", f'"{self.newest.version}"')]
        # After a fault the first answer comes at once, and the fault ends as soon as it is over.
        wait_seconds = WAIT_SECONDS if known and self.fault is None else 0
        answer = await transport.request(
            "GET",
            url,
            f"{_TARGET}?wait_seconds={wait_seconds:g}",
            headers=known,
            timeout=wait_seconds + ANSWER_SECONDS,
        )
        if answer.status == 304:
            self.confirm()
            return
        if answer.status != 200:
            raise problem_error(answer, f"GET {url}{_TARGET}")
        view = PolicyView.model_validate_json(answer.body)
        await self.take(KeptPolicy(view.number, view.version, view.policy))
