"""``eruca auth``: the versions of the rules at the controllers: make one, compare two, go back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.access.places import ControllerOption, controllers_of, read_file
from eruca.cli.access.shown_changes import question_before, show_differences
from eruca.cli.asking import YesOption, confirmed
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.session import Session

if TYPE_CHECKING:
    from eruca.cli.access.places import ControllerPolicy
    from eruca.contract.access import PolicyDocument
    from eruca.contract.policies import PolicyView

_CHANGES_DEFAULT: Final = 20

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say who would gain and lose what; change nothing.")
]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="The reason, for the history.")]


def register_versions(group: typer.Typer) -> None:
    """Add the commands to ``eruca auth``."""
    command(group, "apply")(apply)
    command(group, "history")(history)
    command(group, "diff")(diff)
    command(group, "restore")(restore)


async def apply(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The file of rules.")],
    *,
    dry_run: DryRunOption = False,
    keys: Annotated[
        bool,
        typer.Option("--keys", help="Replace the API keys, too, by those in the file."),
    ] = False,
    reason: ReasonOption = None,
    above: Annotated[
        int,
        typer.Option(
            "--above",
            metavar="NUMBER",
            help="After the controllers' store was restored from an older copy: the number of the "
            "rules that services have.",
            min=0,
        ),
    ] = 0,
    yes: YesOption = False,
    controller: ControllerOption = None,
) -> int:
    """Replace the roles and rules at the controllers by those in a file, and say what changes.

    It asks before it takes anything away from anybody. API keys stay as they are at the
    controllers. Otherwise a key that was revoked there would be valid again because the file still
    has it. Exit code 1 if the change is refused.
    """
    document = read_file(file)
    async with controllers_of(session, controller) as policy:
        view = await policy.view()
        if view is not None and not keys:
            document = document.model_copy(update={"keys": view.policy.keys})
        return await _change(
            session,
            policy,
            (view, document),
            reason or f"rules of {file.name}",
            dry_run=dry_run,
            yes=yes,
            above=above,
        )


async def history(
    session: Session,
    *,
    count: Annotated[
        int, typer.Option("--count", "-n", help="Changes at most.", min=1)
    ] = _CHANGES_DEFAULT,
    controller: ControllerOption = None,
) -> None:
    """Show who changed the rules at the controllers, when, why and how; the newest change first."""
    async with controllers_of(session, controller) as policy:
        changes = await policy.history(limit=count)
    if session.is_json:
        session.show_json([change.model_dump(mode="json") for change in changes])
        return
    for change in changes:
        session.show_text(
            f"{change.version}  {change.changed_at.isoformat()}  {change.by}: {change.reason}"
        )
        show_differences(session.show_text, change.differences)


async def diff(
    session: Session,
    before: Annotated[int, typer.Argument(metavar="FROM", help="A version's number.", min=1)],
    after: Annotated[
        int | None,
        typer.Argument(metavar="[TO]", help="Another version's number [the current one].", min=1),
    ] = None,
    *,
    controller: ControllerOption = None,
) -> int:
    """Compare two versions of the rules at the controllers, line by line, and by their effect.

    Lines of FROM alone begin with -, lines of TO alone with +. Exit code 1 if they differ.
    """
    import time

    from eruca.contract.errors import NotFoundError
    from eruca.core.access.differences import differences
    from eruca.core.access.policy_lines import line_differences

    async with controllers_of(session, controller) as policy:
        old = await policy.version(before)
        new = await (policy.view() if after is None else policy.version(after))
    if new is None:
        raise NotFoundError("there is no policy yet")
    lines = line_differences(old.policy, new.policy)
    effect = differences(old.policy, new.policy, now_ms=int(time.time() * 1000))
    if session.is_json:
        session.show_json(
            {
                "from": old.version,
                "to": new.version,
                "lines": [{"sign": sign, "text": text} for sign, text in lines.lines],
                "differences": effect.model_dump(mode="json"),
            }
        )
    else:
        session.show_text(f"--- version {old.version} of {old.by}: {old.reason}")
        session.show_text(f"+++ version {new.version} of {new.by}: {new.reason}")
        for sign, text in lines.lines:
            session.show_text(f"{sign} {text}")
        show_differences(session.show_text, effect)
    return EXIT_FAILED if lines.lines else 0


async def restore(
    session: Session,
    number: Annotated[int, typer.Argument(help="The version's number.", min=1)],
    *,
    dry_run: DryRunOption = False,
    reason: ReasonOption = None,
    yes: YesOption = False,
    controller: ControllerOption = None,
) -> int:
    """Go back to the roles and rules of an earlier version, as a new one; say what changes.

    API keys stay as they are, so a key that was revoked since stays invalid. It asks before it
    takes anything away from anybody. Exit code 1 if the change is refused.
    """
    async with controllers_of(session, controller) as policy:
        old = await policy.version(number)
        view = await policy.view()
        keys = old.policy.keys if view is None else view.policy.keys
        return await _change(
            session,
            policy,
            (view, old.policy.model_copy(update={"keys": keys})),
            reason or f"the rules of version {number} again",
            dry_run=dry_run,
            yes=yes,
        )


async def _change(
    session: Session,
    policy: ControllerPolicy,
    change: tuple[PolicyView | None, PolicyDocument],
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    above: int = 0,
) -> int:
    """Replace a version that was read by a document, after a question if somebody loses by it."""
    view, document = change
    if view is not None and view.policy == document and not above:
        session.say(f"nothing changes: version {view.version} has these rules")
        return 0
    preview = await policy.preview(document, reason)
    if session.is_json and dry_run:
        session.show_json(preview.model_dump(mode="json"))
    else:
        say = session.say if session.is_json else session.show_text
        show_differences(say, preview.differences)
    if dry_run:
        if preview.locks_out:
            session.say("warning: you could not change the rules any more; it is refused")
        session.say("nothing has been changed")
        return EXIT_FAILED if preview.locks_out else 0
    asks = not yes and not preview.locks_out  # which the controller refuses
    if (
        asks
        and (question := question_before(preview.differences))
        and not await confirmed(question, instead="give --yes, or --dry-run to see the effect")
    ):
        return EXIT_FAILED
    made = await policy.put(
        document, version=None if view is None else view.version, reason=reason, above=above
    )
    if session.is_json:
        session.show_json({"version": made.version, "number": made.number})
    else:
        session.say(f"version {made.version} is in force at every service within two seconds")
    return 0
