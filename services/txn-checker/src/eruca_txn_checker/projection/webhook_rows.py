"""The rows of webhooks, one statement each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from sqlalchemy import delete, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.limits import WEBHOOK_TIMEOUT_SECONDS_DEFAULT
from eruca_txn_checker.projection.tables import webhooks

ERROR_SIZE_MAX: Final = 500  # characters of a stored error


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A producer group's webhook; times are ms since the epoch."""

    producer_group: str
    url: str
    secret: str
    timeout_seconds: float
    is_enabled: bool
    updated_ms: int
    last_answer_ms: int | None
    last_error: str | None


_COLUMNS: Final = [webhooks.c[field.name] for field in fields(WebhookRow)]


async def get_webhook(connection: AsyncConnection, producer_group: str) -> WebhookRow | None:
    """Return a group's webhook; None if it has none."""
    chosen = select(*_COLUMNS).where(webhooks.c.producer_group == producer_group)
    found = (await connection.execute(chosen)).first()
    return None if found is None else WebhookRow(*found)


async def put_webhook(
    connection: AsyncConnection,
    producer_group: str,
    *,
    url: str,
    secret: str | None,
    new_secret: str,
    timeout_seconds: float | None,
    is_enabled: bool | None,
    now_ms: int,
) -> tuple[WebhookRow, bool]:
    """Set a group's webhook; return it, and whether it is new.

    An argument that is None keeps the stored value.

    Args:
        connection: A transaction.
        producer_group: The group.
        url: The URL to call.
        secret: The key for signatures.
        new_secret: The key for a new webhook if *secret* is None.
        timeout_seconds: Time for an answer; None for the default of a new webhook.
        is_enabled: Whether it is called; None enables a new webhook.
        now_ms: Current time.
    """
    statement = insert(webhooks).values(
        producer_group=producer_group,
        url=url,
        secret=secret or new_secret,
        timeout_seconds=timeout_seconds or WEBHOOK_TIMEOUT_SECONDS_DEFAULT,
        is_enabled=is_enabled is not False,
        updated_ms=now_ms,
    )
    held = webhooks.c
    put = await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["producer_group"],
            set_={
                "url": url,
                "secret": held.secret if secret is None else secret,
                "timeout_seconds": held.timeout_seconds
                if timeout_seconds is None
                else timeout_seconds,
                "is_enabled": held.is_enabled if is_enabled is None else is_enabled,
                "updated_ms": now_ms,
                "last_error": None,
            },
        ).returning(*_COLUMNS, literal_column("xmax = 0"))
    )
    *row, is_new = put.one()
    return WebhookRow(*row), bool(is_new)


async def delete_webhook(connection: AsyncConnection, producer_group: str) -> bool:
    """Delete a group's webhook; return whether there was one."""
    deleted = await connection.execute(
        delete(webhooks).where(webhooks.c.producer_group == producer_group)
    )
    return deleted.rowcount > 0


async def note_call(
    connection: AsyncConnection, producer_group: str, *, now_ms: int, error: str | None
) -> None:
    """Record the result of the last call; *error* is None if it was answered."""
    noted = {"last_error": None if error is None else error[:ERROR_SIZE_MAX]}
    answered = {} if error is not None else {"last_answer_ms": now_ms}
    await connection.execute(
        update(webhooks)
        .where(webhooks.c.producer_group == producer_group)
        .values(**noted, **answered)
    )
