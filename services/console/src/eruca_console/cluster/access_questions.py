"""The rules in force at each broker, and the audit records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from eruca.contract.access import AccessExplanation, AccessQuestion
from eruca.contract.errors import AccessError, ErucaError
from eruca.contract.policies import AccessStatus
from eruca.contract.routes import BrokerGroup
from eruca.services.cluster import parsed, send_model
from eruca_console.cluster.audit import AuditRecords, audit_of
from eruca_console.cluster.cache import Answered
from eruca_console.cluster.questions import Gathered, Questions


class AccessQuestions(Questions):
    """Questions about rights."""

    async def access_status(self, group: BrokerGroup) -> Answered[AccessStatus]:
        """Return the rules that are in force at a broker's master."""
        url = self.master_url(group)
        return await self.cache.get(
            ("access", url), lambda: self.asked(AccessStatus, url, "/v1/access")
        )

    async def explained(
        self, group: BrokerGroup, question: AccessQuestion
    ) -> Answered[AccessExplanation]:
        """Return whether a principal has a right, by the rules of a broker's master."""
        url, target = self.master_url(group), "/v1/access:explain"
        context = self.client.context
        seconds = context.settings.timeout_seconds

        async def ask() -> AccessExplanation:
            answer = await send_model(
                context.transport, "POST", url, target, question, timeout=seconds
            )
            return parsed(AccessExplanation, answer, url + target)

        return await self.cache.get(("explain", url, question.model_dump_json()), ask)

    async def audit(self, hours: int) -> Answered[Gathered[Sequence[AuditRecords]]]:
        """Return the newest audit records of each broker, of the last *hours*.

        Raises:
            ForbiddenError: The caller may not read them.
        """

        async def ask(silent: dict[str, ErucaError]) -> Sequence[AuditRecords]:
            since = datetime.now(UTC) - timedelta(hours=hours)
            found: list[AuditRecords] = []
            for group in (await self.brokers()).value:
                try:
                    found.append(await audit_of(self.client, self.master_url(group), since))
                except AccessError:
                    raise
                except ErucaError as error:
                    silent[group.broker_name] = error
            return found

        return await self.gathered(("audit", hours), ask)
