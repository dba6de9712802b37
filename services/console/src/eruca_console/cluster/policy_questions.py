"""The rules and keys at the controllers, by version; nothing here is a key itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from eruca.contract.access import PolicyDocument, StoredKey
from eruca.contract.errors import ConflictError
from eruca.contract.policies import PolicyHistory, PolicyPreview, PolicyPut, PolicyView
from eruca.services.cluster import parsed
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.questions import Questions

PATH: Final = "/v1/policy"


class PolicyQuestions(Questions):
    """Questions about the policy, and changes of it."""

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

    async def policy_version(self, number: int) -> Answered[PolicyView]:
        """Return one version of the policy; raises as :meth:`policy`."""

        async def ask() -> PolicyView:
            answer, url = await self.controllers.request("GET", f"{PATH}/versions/{number}")
            return parsed(PolicyView, answer, f"{url}{PATH}/versions/{number}")

        return await self.cache.get(("policy version", number), ask)

    async def policy_preview(self, policy: PolicyDocument) -> Answered[PolicyPreview]:
        """Return what a change to *policy* would do now; nothing is changed.

        Raises:
            ForbiddenError: The caller may not change the policy.
        """
        body = PolicyPut(policy=policy, reason="a preview")
        answer, url = await self.controllers.request("POST", f"{PATH}:preview", body)
        return Answered(parsed(PolicyPreview, answer, f"{url}{PATH}:preview"), datetime.now(UTC))

    async def policy_seen(self, version: str) -> PolicyView:
        """Return the policy as it is now, if it is the one that somebody has seen.

        Args:
            version: The one that he has seen.

        Raises:
            ConflictError: There is another version by now.
        """
        view = await self._policy_now()
        if view.version != version:
            raise ConflictError(
                f"the rules have changed since the page was shown: expected version "
                f"{version[:64]}, found {view.version}; nothing was done",
                fix="open the page again",
            )
        return view

    async def put_policy(self, version: str, policy: PolicyDocument, reason: str) -> PolicyView:
        """Replace *version* of the policy; return the new one.

        Raises:
            PreconditionFailedError: There is another version by now; nothing was changed.
            ConflictError: The caller could not change the policy any more; nothing was changed.
        """
        answer, url = await self.controllers.request(
            "PUT",
            PATH,
            PolicyPut(policy=policy, reason=reason),
            headers=(("if-match", f'"{version}"'),),
        )
        self.cache.clear()
        return parsed(PolicyView, answer, url + PATH)

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
        view = await self.policy_seen(version)
        policy = view.policy.model_copy(update={"keys": [*changed(view.policy.keys)]})
        return await self.put_policy(version, policy, reason)

    async def _policy_now(self) -> PolicyView:
        answer, url = await self.controllers.request("GET", PATH)
        return parsed(PolicyView, answer, url + PATH)
