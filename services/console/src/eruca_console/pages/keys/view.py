"""The view of the API keys at the controllers, and the acts that make, rotate and revoke one.

A new key is in the answer to its form, once, and nowhere else: not in an address, a log or the
history, which have its id. An act names the version of the rules that its page has shown. So a form
that is sent twice makes no second key.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pydantic

from eruca.contract.access import StoredKey
from eruca.contract.errors import NotFoundError, ValidationError
from eruca.contract.policies import PolicyView
from eruca.core.access.first_policy import made_key
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.forms import check_typed, text_of
from eruca_console.shell.pages import CsvTable, Fields, Page, Shown, Visit

DAYS_MAX: Final = 3_650
OVERLAP_HOURS: Final = 24  # for which a replaced key stays valid
_PATH: Final = "/keys"


async def view(visit: Visit) -> Shown:
    """Return the keys, and the forms that change them.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    state = ListState.of(
        _PATH, visit.query, columns=("principal", "created", "expires"), others=("act", "key")
    )
    policy = await outcome(visit.reading.policy())
    if visit.wants_file:
        policy.check()
    keys = policy.value.policy.keys if policy.value is not None else []
    shown = listed(
        keys,
        state,
        name_of=lambda key: f"{key.principal} {key.id} {key.note}",
        key_of={
            "principal": lambda key: key.principal,
            "created": lambda key: key.created_at,
            "expires": lambda key: key.expires_at,
        },
        is_whole=visit.wants_file,
    )
    act = state.others.get("act", "")
    chosen = None
    if act:
        if act not in ("rotate", "revoke"):
            raise ValidationError(f"query.act: expected rotate or revoke, found {act[:20]!r}")
        chosen = None if policy.value is None else _key_of(keys, state.others.get("key", ""))
    values: dict[str, Any] = {
        "path": _PATH,
        "step": "list",
        "policy": policy,
        "list": shown,
        "state": shown.state,
        "act": act,
        "chosen": chosen,
        "overlap_hours": OVERLAP_HOURS,
    }
    table = CsvTable(
        "keys",
        ("id", "principal", "created_at", "expires_at", "note"),
        [(key.id, key.principal, key.created_at, key.expires_at, key.note) for key in shown.rows],
    )
    return Shown(N_("Keys"), values, _recipe(), table)


async def act(visit: Visit, fields: Fields) -> Shown:
    """Make, rotate or revoke a key, and show a new one, once.

    Raises:
        ConflictError: The rules have changed since the page was shown; nothing was done.
        ValidationError: A field is missing or invalid; nothing was done.
    """
    step, version = text_of(fields, "step"), text_of(fields, "version")
    if step == "revoke":
        key_id = text_of(fields, "key")
        check_typed(fields, key_id)

        def without(keys: Sequence[StoredKey]) -> Sequence[StoredKey]:
            gone = _key_of(keys, key_id)
            return [key for key in keys if key is not gone]

        view = await visit.reading.change_keys(version, without, f"key {key_id} is revoked")
        return _done(step, view, key_id)
    now = datetime.now(UTC).replace(microsecond=0)
    expires_at = _expiry(fields, now)
    if step == "new":
        secret, stored = _made(text_of(fields, "principal"), now, expires_at)
        reason = f"key {stored.id} of {stored.principal}"
        view = await visit.reading.change_keys(version, lambda keys: [*keys, stored], reason)
        return _done(step, view, stored.id, (secret, stored))
    if step != "rotate":
        raise ValidationError(f"step: expected new, rotate or revoke, found {step[:20]!r}")
    old = _key_of((await visit.reading.policy()).value.policy.keys, text_of(fields, "key"))
    secret, stored = _made(old.principal, now, expires_at)
    ends = now + timedelta(hours=OVERLAP_HOURS)

    def replaced(keys: Sequence[StoredKey]) -> Sequence[StoredKey]:
        was = _key_of(keys, old.id)
        is_longer = was.expires_at is None or was.expires_at > ends
        kept = was.model_copy(update={"expires_at": ends}) if is_longer else was
        return [*(kept if key is was else key for key in keys), stored]

    reason = f"key {stored.id} of {stored.principal} replaces {old.id}"
    view = await visit.reading.change_keys(version, replaced, reason)
    return _done(step, view, old.id, (secret, stored))


def _done(
    step: str, view: PolicyView, key_id: str, made: tuple[str, StoredKey] | None = None
) -> Shown:
    values: dict[str, Any] = {
        "path": _PATH,
        "step": step,
        "secret": None if made is None else made[0],
        "stored": None if made is None else made[1],
        "key_id": key_id,
        "view": view,
        "overlap_hours": OVERLAP_HOURS,
    }
    return Shown(N_("Keys"), values, _recipe())


def _key_of(keys: Sequence[StoredKey], key_id: str) -> StoredKey:
    for key in keys:
        if key.id == key_id:
            return key
    raise NotFoundError(f"there is no key {key_id[:40]}", fix="choose one of the list")


def _expiry(fields: Fields, now: datetime) -> datetime | None:
    text = text_of(fields, "days")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= DAYS_MAX):
        raise ValidationError(
            f"days: expected a number from 1 to {DAYS_MAX}, or nothing, found {text[:20]!r}"
        )
    return now + timedelta(days=int(text))


def _made(principal: str, now: datetime, expires_at: datetime | None) -> tuple[str, StoredKey]:
    try:
        return made_key(principal, secrets.token_bytes, created_at=now, expires_at=expires_at)
    except pydantic.ValidationError:
        # Its own text would show the digest of the key.
        raise ValidationError(
            f"principal: expected user:NAME or service:NAME, found {principal[:64]!r}"
        ) from None


def _recipe() -> recipes.Recipe:
    return recipes.Recipe("", "", recipes.cli("auth", "key", "list"))


PAGE: Final = Page(
    "keys",
    _PATH,
    "access",
    view,
    parents=((N_("Access"), "/access"),),
    act=act,
    is_live=False,
)
