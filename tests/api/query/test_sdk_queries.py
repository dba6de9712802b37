"""The SDK's questions: found through the name servers, answered as over HTTP."""

from __future__ import annotations

import pytest

import eruca
from eruca.contract.errors import MessageNotFoundError
from eruca.contract.names import QUERY_SERVICES_NAMESPACE
from support.query_services import Queried
from support.waiting import until_told

pytestmark = pytest.mark.anyio


async def test_a_client_asks_whichever_query_service_the_name_servers_know(
    queried: Queried,
) -> None:
    admin = queried.client.admin
    await until_told(lambda: admin.list_kv(QUERY_SERVICES_NAMESPACE), lambda known: known)
    async with queried.client.producer() as producer:
        sent = await producer.send(eruca.Message("flights", "EWR to IAH", keys=["UA1545"]))
    await queried.caught_up()
    query = queried.client.query

    found = await query.message(sent.message_id)
    page = await query.find("flights", key="UA1545", bodies=True)
    told = await query.timeline(sent.message_id)
    status = await query.status()
    rebuilt = await query.rebuild()

    assert found.message.body == {"text": "EWR to IAH"}
    assert [message.message_id for message in page.messages] == [sent.message_id]
    assert [event.kind for event in told.events] == ["stored"]
    assert [its.broker_name for its in status.followed] == ["broker-a", "broker-b"] == rebuilt
    with pytest.raises(MessageNotFoundError):
        await query.message("no-such-id")
