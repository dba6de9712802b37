"""Every example of the broker's document, sent to a broker at the moment it speaks of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca.contract.broker_groups import Replica
from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca_broker.core.replication.broker_group import BrokerGroup, Member
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.replication.arbiter import GroupRow, KnownRow
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.supervisor import Supervisor
from eruca_broker.processors.replication.switching import Switching
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.app import ServiceApp
from support.brokers import batch, open_broker, record
from support.clocks import ManualClock
from support.openapi_documents import kept_document
from support.openapi_examples import Changes, Scenes, check_answer

pytestmark = pytest.mark.anyio

DOCUMENT: Final = kept_document("broker")
SCENES: Final = Scenes["Stage"](DOCUMENT)
EIGHT_O_CLOCK: Final = 1_795_248_000_000  # 2026-11-21T08:00:00Z, where the examples play
NAME: Final = "10.1.2.3@4711#1"
MEMBER: Final = {"client_id": NAME, "incarnation": "6f1d2c90a4b84ef2"}
MESSAGE: Final = {
    "body": {"json": {"flight": 1545, "origin": "EWR"}},
    "tag": "UA",
    "keys": ["UA1545"],
    "sharding_key": "N14228",
}


class Stage:
    """A broker, and what examples need to have happened there."""

    def __init__(self, client: httpx.AsyncClient, clock: ManualClock, app: ServiceApp) -> None:
        self.client = client
        self.clock = clock
        self.app = app

    async def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request that must succeed, and return its answer."""
        answer = await self.client.request(method, f"/v1{path}", json=body)
        assert answer.is_success, answer.text
        document: dict[str, Any] = answer.json() if answer.content else {}
        return document

    async def topic(self) -> None:
        settings = {"read_queue_count": 8, "write_queue_count": 8}
        await self.call("PUT", "/topics/flights", settings)

    async def sent(self, queue_id: int = 0, **fields: object) -> dict[str, Any]:
        """Send a message like that of the examples to a queue, and return its receipt."""
        await self.topic()
        path = f"/topics/flights/messages?queue_id={queue_id}"
        return await self.call("POST", path, MESSAGE | fields)

    async def sent_under_a_key(self) -> None:
        """Send what the example of a repeated send sends."""
        example = SCENES.examples["sendMessages again"]
        answer = await example.send(self.client, {})
        assert answer.status_code == 201, answer.text

    async def group(self) -> None:
        await self.call("PUT", "/groups/billing", {"start": "earliest", "retries_max": 16})

    async def joined(self, client_id: str = NAME, incarnation: str = MEMBER["incarnation"]) -> None:
        """Let a member join the group, and subscribe to the topic."""
        await self.group()
        path = f"/groups/billing/members/{client_id.replace('#', '%23')}"
        subscription = {"topic": "flights", "filter": "UA || AA", "filter_type": "tag"}
        body = {"incarnation": incarnation, "subscriptions": [subscription]}
        await self.call("PUT", path, body)

    async def locked(self, queue_id: int = 0, **member: str) -> int:
        """Lock a queue for the member, and return the lock's token."""
        body = MEMBER | member | {"queues": [{"topic": "flights", "queue_id": queue_id}]}
        [lock] = (await self.call("POST", "/groups/billing/locks", body))["locks"]
        token: int = lock["token"]
        return token

    async def committed(self, token: int | None = None, **member: str) -> None:
        """Commit that the first message of a queue is consumed, as a member or from outside."""
        offset = {"topic": "flights", "queue_id": 0, "offset": 1, "token": token}
        await self.call("PUT", "/groups/billing/offsets", member | {"offsets": [offset]})

    async def dead_letter(self) -> None:
        """Let the group give up on a message."""
        place = await self.read_by_member()
        body = MEMBER | {"messages": [place | {"delay_level": -1, "error": "no answer"}]}
        await self.call("POST", "/groups/billing/retries", body)

    async def read_by_member(self) -> dict[str, Any]:
        """Send a message into a queue that the member reads; return what names it there."""
        await self.sent()
        await self.joined()
        token = await self.locked()
        return {"topic": "flights", "queue_id": 0, "queue_offset": 0, "token": token}

    async def log_end(self) -> int:
        """Return where the log ends: whatever changes a broker's state is written there."""
        end: int = (await self.call("GET", "/status"))["log"]["max_offset"]
        return end

    async def delivered(self) -> str:
        """Receive a delivery, and return its handle."""
        await self.sent()
        await self.group()
        body = {"topic": "flights", "count_max": 1}
        [delivery] = (await self.call("POST", "/groups/billing/deliveries", body))["deliveries"]
        handle: str = delivery["handle"]
        return handle

    async def leading(self) -> dict[str, Any]:
        """Make the broker the master of epoch 7; return what an empty replica tells it."""
        store = self.app.parts[MessageStore]
        store.role.follow()
        begun = store.role.lead(EpochBegan(7, 1, "c2d07be84a159f31", "10.0.0.1:10911", 0))
        member = Member(1, "c2d07be84a159f31")
        replication = self.app.parts[Replication]
        replication.role, replication.member = "master", member
        replication.feed = Feed(
            store,
            epoch=7,
            master=member,
            known=frozenset({member}),
            clock=self.clock,
            shown_offset=0,
        )
        await begun
        empty: dict[str, Any] = {
            "log_id": None,
            "epochs": [],
            "min_offset": 0,
            "end": 0,
            "tail": None,
        }
        return empty | {"segment_bytes": store.segment_bytes}

    async def begun(self, *, checks: int = 0) -> str:
        """Begin a transaction, let it be checked, and return its id."""
        body = SCENES.examples["beginTransaction"].body
        transaction_id: str = (await self.call("POST", "/transactions", body))["transaction_id"]
        for number in range(1, checks + 1):
            self.clock.advance(60)
            check = {"number": number, "checker": "txn-checker-1"}
            await self.call("POST", f"/transactions/{transaction_id}:check", check)
        return transaction_id


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    clock = ManualClock(now_ms=EIGHT_O_CLOCK + 123)
    async with open_broker(tmp_path, clock) as app:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 52_044))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Stage(client, clock, app)


async def nothing_yet(_stage: Stage) -> None:
    """Leave the broker as it began."""


for alone, status_ in (
    ("health", 200),
    ("readiness", 200),
    ("metrics", 200),
    ("describeProblem", 200),
    ("explainAccess", 200),
    ("getAccess", 200),
    ("getStatus", 200),
    ("putTopic plain", 201),
    ("putTopic ordered", 201),
    ("sendMessages one", 201),
    ("sendMessages batch", 201),
    ("putGroup", 201),
    ("beginTransaction", 201),
    ("beginTransactions", 200),
):
    SCENES.add(alone, status_)(nothing_yet)


@SCENES.add("putTopic plain", 200)
@SCENES.add("getTopic", 200)
@SCENES.add("deleteTopic", 204)
@SCENES.add("listTopics", 200)
async def _(stage: Stage) -> None:
    await stage.topic()


@SCENES.add("getQueues", 200)
@SCENES.add("findMessages", 200)
@SCENES.add("getOffsetByTime", 200)
@SCENES.add("pullMessages", 200)
@SCENES.add("pullManyQueues one", 200)
async def _(stage: Stage) -> None:
    await stage.sent()


@SCENES.add("pullManyQueues many", 200)
async def _(stage: Stage) -> Changes:
    await stage.sent()
    return {"offset": 0}


@SCENES.add("sendMessages again", 201)
async def _(stage: Stage) -> None:
    await stage.sent_under_a_key()


@SCENES.add("sendRecords", 201)
async def _(stage: Stage) -> Changes:
    await stage.topic()
    key = SCENES.examples["sendRecords"].headers["Idempotency-Key"]
    properties = encode_properties({UNIQ_KEY: key})
    return {"content": batch([record("flights", properties=properties)])}


@SCENES.add("readLog", 200)
async def _(stage: Stage) -> Changes:
    receipt = await stage.sent()
    return {"from_offset": receipt["log_offset"]}


@SCENES.add("getLogRecord", 200)
async def _(stage: Stage) -> Changes:
    receipt = await stage.sent()
    return {"log_offset": receipt["log_offset"]}


@SCENES.add("putGroup", 200)
@SCENES.add("getGroup", 200)
@SCENES.add("listGroups", 200)
@SCENES.add("leaveGroup", 204)
async def _(stage: Stage) -> None:
    await stage.topic()
    await stage.joined()


@SCENES.add("deleteGroup", 204)
async def _(stage: Stage) -> None:
    await stage.group()


@SCENES.add("heartbeat", 201)
async def _(stage: Stage) -> Changes:
    await stage.topic()
    return {"locks": []}


@SCENES.add("heartbeat", 200)
async def _(stage: Stage) -> Changes:
    place = await stage.read_by_member()
    return {"token": place["token"]}


@SCENES.add("listMembers", 200)
async def _(stage: Stage) -> None:
    await stage.read_by_member()


@SCENES.add("lockQueues", 200)
async def _(stage: Stage) -> Changes:
    await stage.sent()
    await stage.joined()
    await stage.joined("10.1.2.4@815#1", "another")
    await stage.committed()
    await stage.locked(1, client_id="10.1.2.4@815#1", incarnation="another")
    return {"wait_seconds": 0}


@SCENES.add("releaseQueues", 204)
async def _(stage: Stage) -> Changes:
    place = await stage.read_by_member()
    return {"token": place["token"], "offset": 1}


@SCENES.add("getGroupOffsets", 200)
async def _(stage: Stage) -> None:
    place = await stage.read_by_member()
    await stage.sent()
    await stage.committed(**MEMBER, token=place["token"])


@SCENES.add("listGroupLags", 200)
async def _(stage: Stage) -> None:
    await stage.read_by_member()
    await stage.sent()


@SCENES.add("getGroupAsOf", 200)
async def _(stage: Stage) -> Changes:
    await stage.read_by_member()
    return {"log_offset": (await stage.sent())["log_offset"]}


@SCENES.add("commitOffsets example 1", 204)
async def _(stage: Stage) -> Changes:
    await stage.sent()
    await stage.group()
    return {"offset": 1}


@SCENES.add("commitOffsets example 2", 204)
async def _(stage: Stage) -> Changes:
    place = await stage.read_by_member()
    return {"offset": 1, "token": place["token"]}


@SCENES.add("resetOffsets example 1", 200)
@SCENES.add("resetOffsets example 2", 200)
@SCENES.add("resetOffsets example 3", 200)
async def _(stage: Stage) -> Changes:
    await stage.sent()
    await stage.group()
    await stage.committed()
    return {"offset": 0}


@SCENES.add("sendBack", 200)
async def _(stage: Stage) -> Changes:
    return await stage.read_by_member()


@SCENES.add("listDeadLetters", 200)
@SCENES.add("getDeadLetter", 200)
@SCENES.add("redriveDeadLetters", 200)
async def _(stage: Stage) -> Changes:
    await stage.dead_letter()
    return {"dead_letter_id": 0}


@SCENES.add("receiveDeliveries", 200)
async def _(stage: Stage) -> None:
    await stage.sent()


@SCENES.add("ackDeliveries", 204)
@SCENES.add("nackDeliveries", 200)
@SCENES.add("extendDeliveries", 200)
async def _(stage: Stage) -> Changes:
    return {"handles": [await stage.delivered()]}


@SCENES.add("listScheduled", 200)
@SCENES.add("recallScheduled", 204)
async def _(stage: Stage) -> Changes:
    receipt = await stage.sent(delay_seconds=3600)
    return {"recall_handle": receipt["recall_handle"]}


@SCENES.add("beginTransaction", 200)
async def _(stage: Stage) -> Changes:
    example = SCENES.examples["beginTransaction"].body
    message = example["message"] | {"message_id": "7F00000100002A9F000000000134F1F5"}
    await stage.call("POST", "/transactions", example | {"message": message})
    return {"message": message}


@SCENES.add("listTransactions", 200)
@SCENES.add("getTransaction", 200)
async def _(stage: Stage) -> Changes:
    return {"transaction_id": await stage.begun(checks=1), "producer_group": None}


@SCENES.add("getTransactionAsOf", 200)
async def _(stage: Stage) -> Changes:
    transaction_id = await stage.begun()
    return {
        "transaction_id": transaction_id,
        "log_offset": (await stage.sent())["log_offset"],
    }


@SCENES.add("checkTransaction", 200)
@SCENES.add("commitTransaction producer", 200)
@SCENES.add("commitTransaction operator", 200)
@SCENES.add("rollBackTransaction producer", 200)
async def _(stage: Stage) -> Changes:
    transaction_id = await stage.begun()
    stage.clock.advance(60)
    return {"transaction_id": transaction_id}


@SCENES.add("decideTransactions", 200)
async def _(stage: Stage) -> Changes:
    transaction_id = await stage.begun()
    [committed, unknown] = SCENES.examples["decideTransactions"].body["transactions"]
    return {"transactions": [committed | {"transaction_id": transaction_id}, unknown]}


@SCENES.add("commitTransaction check", 200)
async def _(stage: Stage) -> Changes:
    return {"transaction_id": await stage.begun(checks=2)}


@SCENES.add("expireTransaction", 200)
async def _(stage: Stage) -> Changes:
    return {"transaction_id": await stage.begun(checks=15)}


@SCENES.add("proveLineage", 200)
async def _(stage: Stage) -> Changes:
    return await stage.leading()


@SCENES.add("getReplicationStatus", 200)
@SCENES.add("pullRun", 200)
async def _(stage: Stage) -> Changes:
    body = SCENES.examples["proveLineage"].body | await stage.leading()
    await stage.call("POST", "/replication/lineage", body)
    return {"acknowledged": 0, "sequence": 0}


class Leaver(Supervisor):
    """A master that replica 2 succeeds at once, without an arbiter."""

    def __init__(self) -> None:
        pass

    async def hand_over(self, to: int | None = None, *, is_leaving: bool = False) -> KnownRow:
        group = BrokerGroup(
            8, Member(2, "9f31c2d07be84a15"), frozenset({Member(2, "9f31c2d07be84a15")})
        )
        urls = {"default": "http://10.0.0.2:10911"}
        replica = Replica(replica_id=2, uid=group.master.uid, urls=urls)
        return KnownRow("9", GroupRow(group, (replica,)), "broker-a replica 1")


@SCENES.add("switchMaster", 200)
async def _(stage: Stage) -> None:
    stage.app.parts[Switching].supervisor = Leaver()


@SCENES.add("reportAudit an act", 204)
async def audited(_: Stage) -> None:
    """Reports need nothing."""


@pytest.mark.parametrize(("label", "status"), SCENES.plays, ids=str)
async def test_an_example_is_answered_as_documented(stage: Stage, label: str, status: int) -> None:
    example = SCENES.examples[label]
    changes = await SCENES.plays[label, status](stage) or {}
    content = changes.pop("content", None)
    stage.client.headers["accept"] = "application/json"
    if label == "metrics":
        del stage.client.headers["accept"]

    before = await stage.log_end()
    answer = await example.send(stage.client, changes, content)

    check_answer(DOCUMENT, example, answer, status)
    if example.method == "GET":
        assert await stage.log_end() == before, "a GET has changed something"


def test_every_example_and_every_success_has_its_scene() -> None:
    SCENES.check_that_none_is_missing()
