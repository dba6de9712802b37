"""Five tasks of people who run a cluster, done at the console by a stranger.

The cluster has all that they are about. ``docs/guide/tasks.md`` and its Chinese twin show the acts,
as they were noted. Run as a program it writes the acts into both pages again: see
``tests/system/console/test_tasks.py``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

import eruca
from eruca.core.routing.route_table import address_for
from eruca_console.sessions.cookies import LANGUAGE
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.browser import Page, browsing, chromium
from support.consoles import begin
from support.documents import CHINESE, GUIDE
from support.strangers import Act, Stranger
from support.waiting import until_told

PAGES: Final[Mapping[str, Path]] = {
    "en": GUIDE / "tasks.md",
    "zh": CHINESE / "guide" / "tasks.md",
}
LETTERS: Final = 40  # with one error
OTHER_LETTERS: Final = 3
SECONDS_MAX: Final = 60.0
_ACTS: Final = re.compile(r"(<!-- acts: (\w+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shop:
    """A running cluster and its owner.

    Attributes:
        cluster: The cluster.
        client: The owner's.
    """

    cluster: LocalCluster
    client: eruca.AsyncClient


@asynccontextmanager
async def shop() -> AsyncIterator[Shop]:
    """Run the cluster for the block, with all that the tasks are about."""
    settings = {**SMALL_STORE, "ERUCA_CONTROLLER_STORE": "file"}
    async with (
        LocalCluster(
            replicas=2, queries=1, txn_checkers=1, consoles=1, settings=settings
        ) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic("orders", queue_count=4)
        await client.admin.groups.create("billing", start="earliest")
        async with client.producer() as producer:
            for number in range(1, 21):
                tag = "draft" if number == 17 else "paid"
                body = f'{{"order": {number}}}'.encode()
                await producer.send(eruca.Message("orders", body, keys=str(number), tag=tag))
        await _die(client)
        await begin(client, "orders", "order-99")
        [group] = await client.admin.brokers()
        master = next(one for one in group.brokers if one.role == "master")
        async with httpx.AsyncClient(trust_env=False) as http:
            url = address_for(master.urls, client.settings.network)
            expired = f"{url}/v1/transactions/order-99:expire"
            done = await http.post(expired, json={"checks": 0, "checker": "a-test"})
            done.raise_for_status()
        members = [client.push_consumer("billing", start="earliest") for _ in range(2)]
        for member in members:
            member.on("orders", tag="paid")(lambda message: None)
        async with members[0], members[1]:
            await until_told(lambda: _owners(client), lambda found: len(set(found)) == 2)
            yield Shop(cluster, client)


async def _die(client: eruca.AsyncClient) -> None:
    """Have a group refuse messages until they are dead letters."""
    await client.admin.create_topic("invoices", queue_count=1)
    await client.admin.groups.create("mailer", start="earliest", retries_max=0)
    count = LETTERS + OTHER_LETTERS
    async with client.producer() as producer:
        for number in range(count):
            await producer.send(eruca.Message("invoices", b"x", keys=str(number)))

    def refuse(message: eruca.ReceivedMessage) -> None:
        if int(message.keys[0]) < OTHER_LETTERS:
            raise TimeoutError("no answer")
        raise ConnectionError(f"mail server {message.keys[0]} refused the letter")

    consumer = client.push_consumer(
        "mailer", start="earliest", retries=eruca.Retries(retries_max=0)
    )
    consumer.on("invoices")(refuse)
    async with consumer:
        await until_told(lambda: _letters(client), lambda found: len(found) == count)


async def _letters(client: eruca.AsyncClient) -> list[eruca.HeldDeadLetter]:
    return [one async for one in client.admin.groups.dead_letters("mailer")]


async def _owners(client: eruca.AsyncClient) -> list[str]:
    queues = (await client.admin.groups.lag("billing")).queues
    return [one.owner for one in queues.values() if one.owner]


async def find_order(person: Stranger, shop: Shop) -> None:
    """Find order 17, and say why it was not billed."""
    await person.follow("Messages")
    await person.type("orders", into="Topic")
    await person.type("17", into="Key")
    await person.push("Search")
    await person.open_row("17")
    await person.read("Reason", "The group's filter excludes it.", row="billing")


async def redrive_letters(person: Stranger, shop: Shop) -> None:
    """Redrive the letters with one error, at 20 a second."""
    await person.follow("Groups")
    await person.open_row("mailer")
    await person.follow("Dead letters")
    await person.follow_beginning("ConnectionError")
    await person.tick("Choose all of this page")
    await person.push("Redrive the chosen ones …")
    await person.type("20", into="Letters a second, at most")
    word = str(LETTERS)
    await person.type(word, into="To confirm, type the number of letters: %(count)s", count=word)
    await person.push(
        "Redrive %(count)s dead letter", plural="Redrive %(count)s dead letters", count=LETTERS
    )
    await person.read("Redriven", word)
    held = await _letters(shop.client)
    assert sum(one.letter.redriven_at is not None for one in held) == LETTERS


async def find_reader(person: Stranger, shop: Shop) -> None:
    """Say who reads queue 3."""
    queues = (await shop.client.admin.groups.lag("billing")).queues
    owner = next(one.owner for queue, one in queues.items() if queue.queue_id == 3)
    assert owner is not None
    await person.follow("Groups")
    await person.open_row("billing")
    await person.read("Reader", owner, row="3", is_noted=False)


async def end_transaction(person: Stranger, shop: Shop) -> None:
    """End a parked transaction."""
    await person.follow("Transactions")
    await person.open_row("order-99")
    await person.follow("Roll back …")
    await person.type("a test order", into="Reason, which the broker records")
    await person.type("orders", into="To confirm, type: %(word)s", word="orders")
    await person.push("Roll back the transaction")
    await person.read("", "The message is never delivered.")
    detail = await shop.client.admin.transactions.get("order-99")
    assert detail.state == "rolled_back"


async def switch_master(person: Stranger, shop: Shop) -> None:
    """Switch the master of a broker."""
    before = await _master(shop.client)
    await person.follow("Brokers")
    await person.open_row("broker-a")
    await person.follow("Switch the master …")
    await person.type("broker-a", into="To confirm, type: %(word)s", word="broker-a")
    await person.push("Switch the master")
    await person.read("", "switched")
    await until_told(
        lambda: _master(shop.client), lambda found: found is not None and found != before
    )


async def _master(client: eruca.AsyncClient) -> int | None:
    [group] = await client.admin.brokers()
    return next((one.replica_id for one in group.brokers if one.role == "master"), None)


TASKS: Final[Mapping[str, Callable[[Stranger, Shop], Awaitable[None]]]] = {
    "find_order": find_order,
    "redrive_letters": redrive_letters,
    "find_reader": find_reader,
    "end_transaction": end_transaction,
    "switch_master": switch_master,
}
"""The tasks, in the order of the pages; the last one leaves another master."""


async def done(page: Page, language: str, shop: Shop, task: str) -> Stranger:
    """Have a stranger do a task, from the overview on; return the stranger."""
    [console] = shop.cluster.console_urls
    chosen = {"name": LANGUAGE, "value": language, "url": console}
    await page.command("Network.setCookie", **chosen)
    person = Stranger(page, language)
    await page.open(f"{console}/overview")
    await TASKS[task](person, shop)
    return person


def text_of(person: Stranger, language: str) -> str:
    """Return the acts of a person as a page shows them."""
    shown = _SHOWN[language]
    lines = [f"{number}. {shown(act)}" for number, act in enumerate(person.acts, 1)]
    clicks = sum(act.kind != "read" for act in person.acts)
    return "\n".join([*lines, "", _SUMS[language].format(clicks=clicks, seconds=person.seconds)])


def _in_english(act: Act) -> str:
    match act.kind:
        case "follow":
            return f"Follow **{act.name}**."
        case "open_row":
            return f"Open the row of **{act.name}**."
        case "push":
            return f"Push **{act.name}**."
        case "tick":
            return f"Tick **{act.name}**."
        case "type":
            return f"Type `{act.text}` into **{act.name}**."
        case _:
            place = f" in **{act.name}**" if act.name else ""
            place += f", in the row of **{act.row}**" if act.row else ""
            return f"Read{place}: “{act.text}”" if act.text else f"Read{place}."


def _in_chinese(act: Act) -> str:
    match act.kind:
        case "follow":
            return f"点击 **{act.name}**。"
        case "open_row":
            return f"打开 **{act.name}** 那一行。"
        case "push":
            return f"按 **{act.name}**。"
        case "tick":
            return f"勾选 **{act.name}**。"
        case "type":
            return f"在 **{act.name}** 中输入 `{act.text}`。"
        case _:
            line = f" **{act.row}** 那一行的" if act.row else ""
            place = f"在{line} **{act.name}** 中" if act.name else ""
            return f"{place}读到 “{act.text}”" if act.text else f"{place}读到答案。"


_SHOWN: Final[Mapping[str, Callable[[Act], str]]] = {"en": _in_english, "zh": _in_chinese}
_SUMS: Final[Mapping[str, str]] = {
    "en": "Clicks: {clicks}. Time of a person, estimated: {seconds:.0f} s.",
    "zh": "点击 {clicks} 次\uff0c估计用时 {seconds:.0f} 秒。",
}


def shown_in(document: str) -> dict[str, str]:
    """Return the acts that a page shows, by task."""
    return {found[2]: found[3].strip() for found in _ACTS.finditer(document)}


async def _write_all() -> None:
    """Have every task done in every language, and write the acts into the pages."""
    program = chromium()
    assert program is not None, "there is no Chromium here"
    async with browsing(program) as browser:
        for language, path in PAGES.items():
            document = path.read_text()
            async with shop() as one:
                page = await browser.new_page()
                for task in TASKS:
                    text = text_of(await done(page, language, one, task), language)
                    document = _ACTS.sub(
                        lambda found, task=task, text=text: (  # type: ignore[misc]
                            f"{found[1]}{text}\n{found[4]}" if found[2] == task else found[0]
                        ),
                        document,
                    )
                await page.close()
            path.write_text(document)


if __name__ == "__main__":
    asyncio.run(_write_all())
