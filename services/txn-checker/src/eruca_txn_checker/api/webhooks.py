"""Webhooks: URLs at which producer groups are called instead of polling for checks."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Path, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.access import Right
from eruca.contract.errors import (
    DatabaseUnavailableError,
    ValidationError,
    WebhookNotFoundError,
)
from eruca.contract.fields import GroupName
from eruca.contract.transactions import Webhook, WebhookSettings
from eruca_access.needs import to
from eruca_chassis.admission.needs import in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_postgres.database import Database
from eruca_postgres.notices import notify
from eruca_txn_checker.api import examples
from eruca_txn_checker.checking.postgres_clock import PostgresClock
from eruca_txn_checker.checking.webhook_call import literal_address, refusal_of
from eruca_txn_checker.checking.webhooks import Webhooks
from eruca_txn_checker.core.moments import moment, moment_or_none
from eruca_txn_checker.core.notices import CHECKS, DUE
from eruca_txn_checker.core.reach import Reach, is_within
from eruca_txn_checker.core.webhook_signing import SECRET_SIZE, secret_of
from eruca_txn_checker.projection.webhook_rows import (
    WebhookRow,
    delete_webhook,
    get_webhook,
    put_webhook,
)
from eruca_txn_checker.settings import TxnCheckerSettings

router = Router(prefix="/v1/producer-groups/{producer_group}/webhook", tags=["webhooks"])
Group = Annotated[GroupName, Path(examples=["orders"])]


@router.put(
    "",
    operation_id="putWebhook",
    needs=to(Right.ADMINISTER, group=in_path("producer_group")),
    summary="Set a group's webhook",
    responses=answer(examples.WEBHOOK)
    | answer(examples.NEW_WEBHOOK, 201, model=Webhook)
    | problems(DatabaseUnavailableError),
)
async def set_webhook(
    producer_group: Group,
    settings: Annotated[WebhookSettings, Body(examples=[examples.WEBHOOK_SETTINGS])],
    response: Response,
    *,
    rules: Part[TxnCheckerSettings],
    database: Part[Database],
    clock: Part[PostgresClock],
    webhooks: Part[Webhooks],
) -> Webhook:
    """Set the URL at which the group is called about its transactions.

    Each call is a POST of a `WebhookCheck`, signed according to Standard Webhooks:
    `webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over
    `<webhook-id>.<webhook-timestamp>.<body>`. Refuse a call without a valid signature, or one that
    is minutes old. Answer 200 with `{"answer": "commit"}`, `"rollback"` or `"unknown"`.
    `webhook-id` is the check's id, the same at every attempt. You may also answer later, at
    `/v1/checks/{check_id}`.

    The response is 201 if the group had no webhook. Otherwise a field that is left out keeps its
    value. `secret` is returned only by this request, and only if it was set or generated now.
    """
    _check_url(settings, rules.webhook_reach)
    named = settings.model_fields_set
    made = secret_of(secrets.token_bytes(SECRET_SIZE))
    async with database.transaction() as connection:
        row, is_new = await put_webhook(
            connection,
            producer_group,
            url=str(settings.url),
            secret=settings.secret,
            new_secret=made,
            timeout_seconds=settings.timeout_seconds if "timeout_seconds" in named else None,
            is_enabled=settings.enabled if "enabled" in named else None,
            now_ms=clock.now_ms(),
        )
        await _notify(connection)
    webhooks.wake()
    if is_new:
        response.status_code = HTTPStatus.CREATED
    shown = _shown(row)
    is_told = settings.secret is not None or is_new
    return shown.model_copy(update={"secret": row.secret}) if is_told else shown


@router.get(
    "",
    operation_id="getWebhook",
    needs=to(Right.ADMINISTER, group=in_path("producer_group")),
    summary="Get a group's webhook",
    responses=answer(examples.WEBHOOK) | problems(WebhookNotFoundError, DatabaseUnavailableError),
)
async def show_webhook(producer_group: Group, database: Part[Database]) -> Webhook:
    """Return the group's webhook without its secret, and the result of the last call."""
    async with database.transaction() as connection:
        row = await get_webhook(connection, producer_group)
    if row is None:
        raise _not_found(producer_group)
    return _shown(row)


@router.delete(
    "",
    operation_id="deleteWebhook",
    needs=to(Right.ADMINISTER, group=in_path("producer_group")),
    summary="Delete a group's webhook",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(WebhookNotFoundError, DatabaseUnavailableError),
)
async def drop_webhook(producer_group: Group, database: Part[Database]) -> None:
    """Delete the webhook. The group's producers are asked again when they wait for checks."""
    async with database.transaction() as connection:
        was_there = await delete_webhook(connection, producer_group)
        await _notify(connection)
    if not was_there:
        raise _not_found(producer_group)


async def _notify(connection: AsyncConnection) -> None:
    """Tell all instances that the group's way of being asked, and its reachability, may differ."""
    await notify(connection, CHECKS)
    await notify(connection, DUE)


def _check_url(settings: WebhookSettings, reach: Reach) -> None:
    """Refuse a URL that will never be called; names are resolved only at the call."""
    url = settings.url
    if url.username is not None or url.password is not None:
        raise _fault("it contains a user name or password; calls are authenticated by signature")
    if url.fragment is not None:
        raise _fault("it contains a fragment, which is never sent")
    address = literal_address(url.host or "")
    name = (url.host or "").rstrip(".").lower()
    is_local_name = name == "localhost" or name.endswith(".localhost")  # RFC 6761
    if (address is not None and not is_within(address, reach)) or (
        is_local_name and reach is not Reach.MACHINE
    ):
        raise _fault(refusal_of(str(url.host), reach))


def _fault(detail: str) -> ValidationError:
    return ValidationError.at("/body/url", detail)


def _not_found(producer_group: str) -> WebhookNotFoundError:
    return WebhookNotFoundError(f"producer group {producer_group!r} has no webhook")


def _shown(row: WebhookRow) -> Webhook:
    return Webhook(
        producer_group=row.producer_group,
        url=row.url,
        timeout_seconds=row.timeout_seconds,
        enabled=row.is_enabled,
        updated_at=moment(row.updated_ms),
        last_answer_at=moment_or_none(row.last_answer_ms),
        last_error=row.last_error,
    )
