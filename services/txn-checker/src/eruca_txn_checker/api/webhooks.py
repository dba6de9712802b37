"""Webhooks: where a producer group is called instead of asking."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Path, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import (
    DatabaseUnavailableError,
    ValidationError,
    WebhookNotFoundError,
)
from eruca.contract.models import GroupName
from eruca.contract.transactions import Webhook, WebhookSettings
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_postgres.notices import notify
from eruca_txn_checker.api import examples
from eruca_txn_checker.api.dependencies import TheChecker
from eruca_txn_checker.checking.webhook_call import literal_address, refusal_of
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

router = APIRouter(prefix="/v1/producer-groups/{producer_group}/webhook", tags=["webhooks"])
Group = Annotated[GroupName, Path(examples=["orders"])]


@router.put(
    "",
    operation_id="putWebhook",
    summary="Set a group's webhook",
    responses=answer(examples.WEBHOOK)
    | answer(examples.NEW_WEBHOOK, 201, model=Webhook)
    | problems(DatabaseUnavailableError),
)
async def set_webhook(
    producer_group: Group,
    settings: Annotated[WebhookSettings, Body(examples=[examples.WEBHOOK_SETTINGS])],
    checker: TheChecker,
    response: Response,
) -> Webhook:
    """Let the group be called at a URL when it is asked about a transaction.

    Each call is a POST of a `WebhookCheck`, signed as Standard Webhooks say: `webhook-signature` is
    `v1,` and the base64 of HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<body>`. Refuse what
    is not signed so, or minutes old. Answer 200 with `{"answer": "commit"}`, `"rollback"` or
    `"unknown"`. `webhook-id` is the check's id, the same at every attempt; the answer may also be
    given later, to `/v1/checks/{check_id}`.

    201 where the group had none; else what is not named stays as it is. `secret` is in this answer
    alone, if it was set or made now.
    """
    _check_url(settings, checker.settings.webhook_reach)
    named = settings.model_fields_set  # what is not named stays as it is
    made = secret_of(secrets.token_bytes(SECRET_SIZE))
    async with checker.instance.database.transaction() as connection:
        row, is_new = await put_webhook(
            connection,
            producer_group,
            url=str(settings.url),
            secret=settings.secret,
            new_secret=made,
            timeout_seconds=settings.timeout_seconds if "timeout_seconds" in named else None,
            is_enabled=settings.enabled if "enabled" in named else None,
            now_ms=checker.clock.now_ms(),
        )
        await _notify(connection)
    checker.webhooks.wake()
    if is_new:
        response.status_code = HTTPStatus.CREATED
    shown = _shown(row)
    is_told = settings.secret is not None or is_new
    return shown.model_copy(update={"secret": row.secret}) if is_told else shown


@router.get(
    "",
    operation_id="getWebhook",
    summary="Look at a group's webhook",
    responses=answer(examples.WEBHOOK) | problems(WebhookNotFoundError, DatabaseUnavailableError),
)
async def show_webhook(producer_group: Group, checker: TheChecker) -> Webhook:
    """Return the group's webhook without its secret, and how the last call went."""
    async with checker.instance.database.transaction() as connection:
        row = await get_webhook(connection, producer_group)
    if row is None:
        raise _not_found(producer_group)
    return _shown(row)


@router.delete(
    "",
    operation_id="deleteWebhook",
    summary="Delete a group's webhook",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(WebhookNotFoundError, DatabaseUnavailableError),
)
async def drop_webhook(producer_group: Group, checker: TheChecker) -> None:
    """Let the group's producers be asked again, when they wait for checks."""
    async with checker.instance.database.transaction() as connection:
        was_there = await delete_webhook(connection, producer_group)
        await _notify(connection)
    if not was_there:
        raise _not_found(producer_group)


async def _notify(connection: AsyncConnection) -> None:
    """Tell all instances that a group is asked by another way, and may be reached or not."""
    await notify(connection, CHECKS)
    await notify(connection, DUE)


def _check_url(settings: WebhookSettings, reach: Reach) -> None:
    """Refuse what will never be called; names are looked up when they are."""
    url = settings.url
    if url.username is not None or url.password is not None:
        raise _fault("it holds a password; calls are signed instead")
    if url.fragment is not None:
        raise _fault("a fragment is never sent")
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
