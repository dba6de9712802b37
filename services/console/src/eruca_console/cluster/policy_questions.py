"""The rules and keys at the controllers, by version; nothing here is a key itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from eruca.contract.access import StoredKey
from eruca.contract.errors import ConflictError
from eruca.contract.policies import PolicyHistory, PolicyPut, PolicyView
from eruca.services.cluster import parsed
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.questions import Questions

PATH: Final = "/v1/policy"


class PolicyQuestions(Questions):
    """Questions about the policy, and changes of its keys."""

    async def policy(self) -> Answered[PolicyView]:
        """Return the policy.

        Raises:
            NoRouteError: No controller is known.
            NotFoundError: The controllers have no policy.
            ConflictError: They keep none, because their rules are in a file.
        """
        return await self.cache.get("policy", self._policy_now)

    async def policy_history(self, cursor: str | None = None) -> Answered[PolicyHistory]:
        """Return the changes of the policy, the newest first; raises as :meth:`policy`."""
        query = f"?{urlencode({'cursor': cursor})}" if cursor else ""

        async def ask() -> PolicyHistory:
            answer, url = await self.controllers.request("GET", f"{PATH}/history{query}")
            return parsed(PolicyHistory, answer, f"{url}{PATH}/history")

        return await self.cache.get(("policy history", cursor), ask)

    async def change_keys(
        self,
        version: str,
        changed: Callable[[Sequence[StoredKey]], Sequence[StoredKey]],
        reason: str,
    ) -> PolicyView:
        """Change the keys of the policy that somebody has seen; return the new one.

        Args:
            version: The one that he has seen.
            changed: Returns the new keys.
            reason: For the history.

        Raises:
            ConflictError: There is another version by now; nothing was changed.
            PreconditionFailedError: Likewise.
        """
        view = await self._policy_now()
        if view.version != version:
            raise ConflictError(
                f"the rules have changed since the page was shown: expected version {version}, "
                f"found {view.version}; nothing was done",
                fix="open the page again",
            )
        policy = view.policy.model_copy(update={"keys": [*changed(view.policy.keys)]})
        answer, url = await self.controllers.request(
            "PUT",
            PATH,
            PolicyPut(policy=policy, reason=reason),
            headers=(("if-match", f'"{version}"'),),
        )
        self.cache.clear()
        return parsed(PolicyView, answer, url + PATH)

    async def _policy_now(self) -> PolicyView:
        answer, url = await self.controllers.request("GET", PATH)
        return parsed(PolicyView, answer, url + PATH)
