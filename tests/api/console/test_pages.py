"""The pages by their text, over a real cluster of two brokers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from typing import Final

import anyio
import httpx
import pytest

import eruca
from eruca.contract.recall_handles import RecallHandle, encode_recall_handle
from eruca_console.pages import PAGES
from support.consoles import Visited, begin, visited_in

pytestmark = pytest.mark.anyio
HANDLE: Final = encode_recall_handle(RecallHandle("orders", "broker-a", 1_800_000_000_000, "gone"))
HANDLE_ELSEWHERE: Final = encode_recall_handle(
    RecallHandle("orders", "broker-z", 1_800_000_000_000, "gone")
)
PATHS: Final = {
    "overview": "/overview",
    "brokers": "/brokers",
    "broker": "/brokers/broker-a",
    "broker_switch": "/brokers/broker-a/switch",
    "topics": "/topics",
    "topic": "/topics/orders",
    "groups": "/groups",
    "group": "/groups/billing",
    "group_as_of": "/groups/billing/as-of?broker=broker-a&log_offset=9999",
    "messages": "/messages",
    "dead_letters": "/groups/billing/dead-letters",
    "group_reset": "/groups/billing/reset?topic=orders&to=earliest",
    "topic_volume": "/topics/orders/volume",
    "topic_send": "/topics/orders/send",
    "topic_settings": "/topic-settings?topic=orders&permission=r&step=preview",
    "group_settings": "/group-settings?group=billing&consume_enabled=no&step=preview",
    "scheduled": "/scheduled",
    "scheduled_recall": f"/scheduled/{HANDLE}",
    "audit": "/audit",
    "rules": "/rules",
    "rules_now": "/rules/now",
    "rules_change": "/rules/change?kind=rule",
    "rules_compare": "/rules/compare?from=1&to=2",
    "keys": "/keys",
    "access": "/access?principal=user:ann&right=produce&resource=topic:orders",
    "transactions": "/transactions",
    "transaction": "/transactions/broker-a/order-17",
    "transaction_decision": "/transactions/broker-a/order-17/decision?outcome=commit",
}
ELSEWHERE: Final = {"message"}  # needs a query service: tests/system/console
NAUGHTY: Final = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
async def visited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visited]:
    async with visited_in(tmp_path_factory.mktemp("cluster"), live_seconds=0.05) as visited:
        client = visited.client
        for topic in ("orders", "returns"):
            await client.admin.create_topic(topic, queue_count=2)
        await client.admin.create_topic("ledger", queue_count=1, ordered=True)
        await client.admin.groups.create("billing", start="earliest", retries_max=3)
        await client.admin.groups.create("idle")
        async with client.producer() as producer:
            for number in range(6):
                await producer.send(eruca.Message("orders", b"x", keys=[str(number)]))
        await begin(client, "orders", "order-17")
        consumer = client.push_consumer("billing", start="earliest", client_id="c1@test")
        consumer.on("orders")(lambda message: None)
        async with consumer:
            yield visited


def test_each_page_is_visited_here() -> None:
    assert PATHS.keys() | ELSEWHERE == {page.name for page in PAGES}


@pytest.mark.parametrize("path", PATHS.values())
async def test_a_page_runs_nothing_that_stands_in_it_and_says_when_it_was_asked(
    visited: Visited, path: str
) -> None:
    answer = await visited.http.get(path)

    text = answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"\s(?:style|on\w+)=", text) == []
    assert re.search(r"As of \d\d:\d\d:\d\d UTC", text)
    assert "Copy as curl" in text
    assert re.findall(r"(?:src|href)=\"(?!/|#)", text) == []


@pytest.mark.parametrize("path", PATHS.values())
async def test_a_page_is_there_in_chinese(visited: Visited, path: str) -> None:
    answer = await visited.http.get(path, headers={"accept-language": "zh-CN"})

    assert '<html lang="zh-Hans"' in answer.text
    assert "截至 UTC" in answer.text


async def test_the_front_leads_to_the_overview(visited: Visited) -> None:
    answer = await visited.http.get("/")

    assert (answer.status_code, answer.headers["location"]) == (307, "overview")


async def test_the_overview_shows_brokers_and_groups(visited: Visited) -> None:
    text = await visited.page("/overview")

    for name in ("broker-a", "broker-b"):
        assert re.search(rf'{name}</a></th>\s*<td><span class="badge good">', text)
    assert "brokers registered" in text
    assert "does not answer" in text  # there is no query service


async def test_the_list_of_topics_shows_queues_messages_and_readers(visited: Visited) -> None:
    text = await visited.page("/topics")

    row = re.search(r'href="/topics/orders">.*?</tr>', text, re.DOTALL)
    assert row is not None
    numbers = re.findall(r'<td class="number">([^<]*)</td>', row[0])
    assert numbers == ["4", "6", "1"]
    assert "ordered" in text
    assert "%RETRY%" not in text
    assert "%RETRY%billing" in await visited.page("/topics?derived=yes")


async def test_lists_are_searched_sorted_and_files(visited: Visited) -> None:
    found = await visited.page("/topics?q=RET")
    assert 'href="/topics/returns"' in found
    assert 'href="/topics/orders"' not in found
    assert "No topic's name contains “zz”." in await visited.page("/topics?q=zz")

    text = await visited.page("/topics?sort=-name")
    assert text.index('href="/topics/returns"') < text.index('href="/topics/ledger"')

    answer = await visited.http.get("/topics?q=r&sort=-queues&format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert 'filename="topics.csv"' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["topic"] for row in rows] == ["orders", "returns", "ledger"]
    assert rows[0]["groups"] == "billing"


async def test_a_topic_shows_each_queue(visited: Visited) -> None:
    text = await visited.page("/topics/orders")

    rows = re.findall(r'<th scope="row">(broker-\w)</th>\s*<td class="number">(\d)</td>', text)
    assert [row for row in rows if row[1] in "01"][:4] == [
        ("broker-a", "0"),
        ("broker-a", "1"),
        ("broker-b", "0"),
        ("broker-b", "1"),
    ]
    assert 'href="/groups/billing"' in text
    answer = await visited.http.get("/topics/orders?format=csv")
    kept = [
        int(row["next_offset"]) - int(row["first_offset"])
        for row in csv.DictReader(io.StringIO(answer.text))
    ]
    assert (len(kept), sum(kept)) == (4, 6)


async def test_a_group_shows_its_members_and_their_queues(visited: Visited) -> None:
    text = await visited.page("/groups/billing")

    assert "<code>c1@test</code>" in text
    assert "Lag by queue" in text
    assert "Messages and bytes that the group has read" in text
    assert "<dt>Retries before a dead letter</dt><dd>3</dd>" in text
    members = await visited.page("/groups/idle")
    assert "The group has no member now." in members


async def test_groups_are_sorted_by_their_lag(visited: Visited) -> None:
    text = await visited.page("/groups?sort=-lag")

    assert 'aria-sort="descending"' in text
    assert {"billing", "idle"} <= set(re.findall(r'href="/groups/(\w+)"', text))


async def test_unfinished_deliveries_need_the_query_service(visited: Visited) -> None:
    text = await visited.page("/groups/billing?unfinished=orders")

    assert "Unknown now." in text
    assert "no query service is known" in text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/topics/nowhere", 404, "no broker has topic nowhere"),
        ("/groups/nobody", 404, "nobody"),
        ("/topics?colour=red", 422, "query.colour"),
        ("/groups?page=0", 422, "query.page"),
        ("/topics/orders?sort=x", 422, "query.sort"),
        ("/groups/nobody/dead-letters", 404, "nobody"),
        ("/groups/billing/dead-letters", 200, "The group has no dead letters."),
        ("/messages?key=1", 422, "query.topic"),
        ("/messages?topic=orders&since=soon", 422, "query.since"),
        ("/messages?topic=orders&since=0001-01-01T00:00%2B23:59", 422, "query.since"),
        ("/messages?topic=orders&until=9999-12-31T23:59-23:59", 422, "query.until"),
        ("/messages?topic=orders&format=pdf", 422, "query.format"),
        ("/messages?topic=orders&format=csv", 503, "no query service is known"),
        ("/messages?topic=%E4%B8%BB%E9%A2%98&format=csv", 422, "character that is not allowed"),
        ("/overview?format=csv", 422, "query.format"),
        ("/topics?q=a&q=b", 422, "query.q: it is given twice"),
        ("/messages?colour=red", 422, "query.colour"),
        ("/messages/x?view=colour", 422, "query.view"),
        ("/messages?topic=orders", 200, "no query service is known"),
        ("/access?principal=ann&right=produce&resource=log", 422, "query.principal"),
        ("/access?principal=user:ann&right=own&resource=log", 422, "query.right"),
        ("/access", 200, "none: everybody may do everything"),
        ("/audit?since=2h", 422, "query.since"),
        ("/audit", 200, "Services without rules write none."),
        ("/brokers/broker-z", 404, "broker-z"),
        ("/brokers/broker-z/switch", 404, "no registered master"),
        ("/brokers?sort=colour", 422, "query.sort"),
        ("/brokers/broker-a", 200, "A broker without replicas has no epochs."),
        ("/brokers/broker-a/switch", 200, "No other replica is in sync"),
        ("/groups/nobody/reset", 404, "nobody"),
        ("/groups/billing/reset?topic=orders", 422, "to: expected"),
        ("/groups/billing/reset?topic=orders&to=time", 422, "at: expected a time"),
        ("/groups/billing/reset?topic=orders&to=time&at=soon", 422, "query.at"),
        ("/groups/billing/reset?topic=nowhere&to=latest", 404, "nowhere"),
        ("/topics/nowhere/send", 404, "nowhere"),
        ("/scheduled/nonsense", 422, "path.handle"),
        (f"/scheduled/{HANDLE}", 200, "It does not wait any more."),
        (f"/scheduled/{HANDLE_ELSEWHERE}", 200, "<dt>State</dt><dd>?</dd>"),
        ("/transactions/broker-a/none", 404, "none"),
        ("/transactions/broker-z/none", 404, "broker-z"),
        ("/transactions?sort=colour", 422, "query.sort"),
        ("/transactions/broker-a/order-17/decision", 422, "query.outcome"),
        ("/no/such/page", 404, "no page at /no/such/page"),
        ("/static/x/nothing.js", 404, ""),
        (f"/topics/{NAUGHTY.replace('/', '%2F')}", 404, "no page"),
        ("/topics/<script>", 422, "topic"),
        (f"/topics?q={NAUGHTY}", 200, "name contains"),
    ],
)
async def test_an_error_is_a_page_that_says_what_to_do_and_runs_nothing(
    visited: Visited, path: str, status: int, said: str
) -> None:
    answer = await visited.http.get(path)

    assert answer.status_code == status
    assert said in answer.text
    assert "<script>" not in answer.text


async def test_the_page_of_an_error_leads_to_the_list(visited: Visited) -> None:
    answer = await visited.http.get("/topics/nowhere")

    assert '<a href="/topics" aria-current="page">' in answer.text
    assert '<nav class="crumbs" aria-label="Path"><a href="/topics">Topics</a>' in answer.text


async def test_the_overview_counts_the_topics_that_the_list_shows(visited: Visited) -> None:
    overview = await visited.page("/overview")

    listed = re.search(r"1 to (\d+) of \1", await visited.page("/topics"))
    every = re.search(r"1 to (\d+) of \1", await visited.page("/topics?derived=yes"))
    assert listed is not None
    assert every is not None
    assert int(listed[1]) < int(every[1])
    tile = re.search(r'href="/topics"><span class="figure">(\d+)</span>', overview)
    assert tile is not None
    assert tile[1] == listed[1]


async def test_a_program_gets_a_problem_instead_of_an_unknown_page(visited: Visited) -> None:
    answer = await visited.http.get("/no/such/page", headers={"accept": "application/json"})

    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def test_a_head_ends_before_a_stream_of_updates(visited: Visited) -> None:
    with anyio.fail_after(30):
        answer = await visited.http.head("/overview", headers={"accept": "text/event-stream"})

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_htmx_gets_the_live_part_alone(visited: Visited) -> None:
    answer = await visited.http.get("/topics?q=orders", headers={"hx-request": "true"})

    assert answer.status_code == httpx.codes.OK
    assert "<html" not in answer.text
    assert 'href="/topics/orders"' in answer.text


async def test_static_files_are_kept_forever_and_named_by_their_content(visited: Visited) -> None:
    text = await visited.page("/overview")
    files = re.findall(r'(?:src|href)="(/static/[^"]+)"', text)

    assert len(files) == 4
    for file in files:
        answer = await visited.http.get(file)
        assert answer.status_code == httpx.codes.OK
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_preferences_are_kept_in_cookies_and_come_back_to_the_page(visited: Visited) -> None:
    text = await visited.page("/topics?q=a")
    token = re.search(r'name="csrf" value="([^"]+)"', text)
    assert token is not None
    form = {"csrf": token[1], "next": "/topics?q=a", "theme": "dark", "language": "zh"}

    answer = await visited.http.post("/preferences", data=form)

    assert (answer.status_code, answer.headers["location"]) == (303, "/topics?q=a")
    visited.http.cookies.update(answer.cookies)
    kept = await visited.page("/overview")
    visited.http.cookies.clear()
    assert '<html lang="zh-Hans" data-theme="dark">' in kept


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, "theme=dark", 403),
        ({}, "csrf=wrong&theme=dark", 403),
        ({"content-type": "application/json"}, "{}", 415),
        ({}, "csrf=%FF", 400),
        ({}, "&".join(f"f{number}=1" for number in range(1_200)), 400),
    ],
)
async def test_a_form_that_is_not_from_a_page_changes_nothing(
    visited: Visited, headers: dict[str, str], body: str, status: int
) -> None:
    form = {"content-type": "application/x-www-form-urlencoded", **headers}

    answer = await visited.http.post("/preferences", content=body, headers=form)

    assert (answer.status_code, answer.headers.get("set-cookie")) == (status, None)
