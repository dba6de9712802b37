"""``eruca auth``: API keys and rules, in a file or at the controllers; they say who may do what."""

from __future__ import annotations

import getpass
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.access.places import (
    ControllerOption,
    FileOption,
    key_of,
    place_of,
    write_private,
)
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.commands.auth_versions import register_versions
from eruca.cli.counts import counted
from eruca.cli.session import Session

if TYPE_CHECKING:
    from pydantic import ValidationError

    from eruca.cli.access.key_uses import KeyUses
    from eruca.contract.access import StoredKey

_DAY_SECONDS: Final = 86_400


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Who may do what: API keys and rules.")
    command(group, "init")(init)
    command(group, "check")(check)
    command(group, "show")(show)
    command(group, "explain")(explain)
    register_versions(group)
    command(group, "schema")(schema)
    keys = typer.Typer(no_args_is_help=True, help="Make, list, rotate and revoke API keys.")
    command(keys, "new")(new)
    command(keys, "list")(list_)
    command(keys, "rotate")(rotate)
    command(keys, "revoke")(revoke)
    group.add_typer(keys, name="key")
    app.add_typer(group, name="auth")


async def init(
    session: Session,
    directory: Annotated[Path, typer.Argument(help="A directory, which is created.")],
    *,
    administrator: Annotated[
        str | None,
        typer.Option("--administrator", help="The first administrator [user:YOUR_LOGIN]."),
    ] = None,
) -> None:
    """Make a first file of rules, and a file with a key for each service and the administrator.

    rules.toml has only digests. Each key is in a file of its own: give it to its service, by
    ERUCA_API_KEY_FILE. Nothing is overwritten.
    """
    from pydantic import ValidationError

    from eruca.contract.errors import ClientError
    from eruca.core.access.first_policy import ADMINISTRATOR, first_policy

    rules = directory / "rules.toml"
    if rules.exists():
        raise ClientError(f"{rules} exists already", fix="choose another directory")
    try:
        made = first_policy(
            administrator or f"user:{getpass.getuser()}",
            secrets.token_bytes,
            created_at=datetime.now(UTC).replace(microsecond=0),
        )
    except ValidationError as error:
        raise typer.BadParameter(_said(error)) from None
    directory.mkdir(0o700, parents=True, exist_ok=True)
    keys = {**made.service_keys, ADMINISTRATOR: made.administrator_key}
    for role, key in keys.items():
        write_private(directory / f"{role}.key", f"{key}\n")
    write_private(rules, made.text)
    if session.is_json:
        files = {role: str(directory / f"{role}.key") for role in keys}
        session.show_json({"rules": str(rules), "keys": files})
        return
    for path in (rules, *(directory / f"{role}.key" for role in keys)):
        session.show_text(str(path))


async def new(
    session: Session,
    principal: Annotated[str, typer.Argument(help="user:NAME or service:NAME.")],
    *,
    days: Annotated[
        float | None, typer.Option("--days", help="The key expires after so many days.", min=0)
    ] = None,
    file: FileOption = None,
    controller: ControllerOption = None,
) -> None:
    """Make an API key, store its digest, and print the key, once.

    The key itself is not stored anywhere. A file is created if it does not exist.
    """
    key, stored = _made(principal, days)
    async with place_of(session, file, controller) as place:
        await place.add_key(stored)
    _show_key(session, key, stored)


async def rotate(
    session: Session,
    key_id: Annotated[str, typer.Argument(help="The id of the key to replace.")],
    *,
    overlap_hours: Annotated[
        float,
        typer.Option("--overlap", help="Hours for which the old key stays valid.", min=0),
    ] = 24,
    days: Annotated[
        float | None, typer.Option("--days", help="The new key expires after so many days.", min=0)
    ] = None,
    file: FileOption = None,
    controller: ControllerOption = None,
) -> None:
    """Replace an API key by a new one of the same principal, and print the new key, once.

    The old one stays valid for a while, so that programs can be given the new one meanwhile.
    """
    async with place_of(session, file, controller) as place:
        old = key_of((await place.read()).keys, key_id)
        key, stored = _made(old.principal, days)
        ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=overlap_hours)
        is_longer = old.expires_at is None or old.expires_at > ends
        await place.add_key(
            stored, ends=old.model_copy(update={"expires_at": ends}) if is_longer else None
        )
    _show_key(session, key, stored)


async def revoke(
    session: Session,
    key_id: Annotated[str, typer.Argument(help="The id of the key.")],
    *,
    file: FileOption = None,
    controller: ControllerOption = None,
) -> None:
    """Remove an API key; services refuse it within two seconds."""
    async with place_of(session, file, controller) as place:
        await place.remove_key(key_id)
    session.say(f"key {key_id} is revoked")


async def list_(
    session: Session,
    *,
    used: Annotated[
        bool, typer.Option("--used", help="Ask all services when each key was used last.")
    ] = False,
    file: FileOption = None,
    controller: ControllerOption = None,
) -> int:
    """List the API keys: ids and principals, never the keys.

    With --used, the latest use that a running service knows, to the minute. A service forgets uses
    when it stops. Exit code 1 if one does not answer.
    """
    async with place_of(session, file, controller) as place:
        keys = (await place.read()).keys
    found = [key.model_dump(mode="json", exclude={"sha256"}) for key in keys]
    uses = await _key_uses(session) if used else None
    if uses is not None:
        for key in found:
            key["last_used_at"] = uses.last_used_at.get(key["id"])
    if session.is_json:
        session.show_json(found)
    else:
        session.show_table(
            ["id", "principal", "created", "expires", *(["last used"] if used else [])],
            [
                (
                    *(key["id"], key["principal"], key["created_at"], key["expires_at"] or "never"),
                    *([key["last_used_at"] or "not known"] if used else []),
                )
                for key in found
            ],
            none="no keys",
        )
    return EXIT_FAILED if uses is not None and uses.silent else 0


async def _key_uses(session: Session) -> KeyUses:
    """Return the last uses of keys, and say from which services they come."""
    from eruca.cli.access.key_uses import key_uses

    async with session.client() as client:
        uses = await key_uses(client)
    for url, error in uses.silent.items():
        session.say(f"{url} does not say it: {error}")
    if uses.since is not None:
        session.say(
            f"uses since {uses.since.isoformat()}, or earlier, are known of "
            f"{counted(len(uses.asked), 'service')}"
        )
    return uses


async def check(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(help="The file of rules [ERUCA_AUTH_FILE].")
    ] = None,
    *,
    controller: ControllerOption = None,
) -> int:
    """Check a file of rules before services read it. Exit code 1 if it has a mistake.

    Warnings name holders of rules, quotas and namespaces that have no key and no members.
    """
    from eruca.core.access.roles import PREDEFINED_ROLES

    async with place_of(session, file, controller) as place:
        document = await place.read()
    members = {member for role in document.roles.values() for member in role}
    holders = {key.principal for key in document.keys} | members
    holders |= {f"role:{role}" for role in (*document.roles, *PREDEFINED_ROLES)}
    named = {holder for rule in document.rules for holder in rule.to}
    named |= {holder for quota in document.quotas for holder in quota.to}
    named |= {holder for namespace in document.namespaces for holder in namespace.to}
    holders |= {f"role:{role}" for issuer in document.issuers for role in issuer.roles.values()}
    # No key proves the others: tokens and certificates do.
    unused = sorted(h for h in named - holders if not h.startswith(("oidc:", "cert:")))
    if session.is_json:
        quotas = [quota.model_dump(exclude_none=True) for quota in document.quotas]
        session.show_json(
            {
                "valid": True,
                "rules": len(document.rules),
                "unused": unused,
                "quotas": quotas,
                "namespaces": [namespace.model_dump() for namespace in document.namespaces],
            }
        )
        return 0
    for holder in unused:
        session.say(f"warning: {holder} has rules, but no key and no members")
    for quota in document.quotas:
        session.say(f"quota: {quota}")
    for namespace in document.namespaces:
        session.say(f"namespace: {namespace}")
    session.say(
        f"valid: {counted(len(document.rules), 'rule')}, {counted(len(document.keys), 'key')}"
    )
    return 0


async def show(
    session: Session, *, file: FileOption = None, controller: ControllerOption = None
) -> None:
    """Show roles, rules, quotas and namespaces, one per line, in the words of the explanations."""
    from eruca.core.access.policy_lines import policy_lines

    async with place_of(session, file, controller) as place:
        document = await place.read()
    if session.is_json:
        session.show_json(document.model_dump(mode="json", exclude={"keys"}, by_alias=True))
        return
    for line in policy_lines(document):
        session.show_text(line)


async def schema(session: Session) -> None:
    """Print the JSON schema of a file of rules, for editors."""
    from eruca.contract.access import PolicyDocument

    session.show_text(json.dumps(PolicyDocument.model_json_schema(by_alias=True), indent=1))


async def explain(
    session: Session,
    principal: Annotated[str, typer.Argument(help="For example user:checkout.")],
    right: Annotated[str, typer.Argument(help="produce, consume, query or administer.")],
    resource: Annotated[str, typer.Argument(help="For example topic:orders.")],
    *,
    address: Annotated[
        str,
        typer.Option("--address", help="IP address of the client, if rules name networks."),
    ] = "",
    file: FileOption = None,
    controller: ControllerOption = None,
) -> int:
    """Say whether a principal has a right, and by which rule. Exit code 1 if it has not."""
    from pydantic import ValidationError

    from eruca.contract.access import AccessQuestion, Resource
    from eruca.core.access.policy import Policy

    try:
        question = AccessQuestion.model_validate(
            {"principal": principal, "right": right, "resource": resource}
        )
        asked = Resource.of(resource)
    except ValidationError as error:
        raise typer.BadParameter(_said(error)) from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    async with place_of(session, file, controller) as place:
        document = await place.read()
    explanation = Policy(document).explain(
        question.principal,
        question.right,
        asked,
        address=address,
        now_ms=round(datetime.now(UTC).timestamp() * 1000),
    )
    if session.is_json:
        session.show_json(explanation)
    else:
        session.show_text("allowed" if explanation.allowed else "refused")
        session.show_text(explanation.rule or explanation.reason)
        if explanation.fix is not None:
            session.say(f"to allow it: {explanation.fix}")
    return 0 if explanation.allowed else EXIT_FAILED


def _made(principal: str, days: float | None) -> tuple[str, StoredKey]:
    """Return a new key, and the key as it is stored."""
    from pydantic import ValidationError

    from eruca.core.access.first_policy import made_key

    now = datetime.now(UTC).replace(microsecond=0)
    expires_at = None if days is None else now + timedelta(seconds=days * _DAY_SECONDS)
    try:
        return made_key(principal, secrets.token_bytes, created_at=now, expires_at=expires_at)
    except ValidationError as error:
        raise typer.BadParameter(_said(error)) from None


def _said(error: ValidationError) -> str:
    """Return the faults of *error* without the values, which may be secret."""
    faults = error.errors(include_input=False, include_url=False)
    return "; ".join(fault["msg"].removeprefix("Value error, ") for fault in faults)


def _show_key(session: Session, key: str, stored: StoredKey) -> None:
    if session.is_json:
        document = stored.model_dump(mode="json", exclude={"sha256"})
        session.show_json({"key": key, **document})
    else:
        session.show_text(key)
        session.say(f"key {stored.id} of {stored.principal}; it is not shown again")
