"""The view of a group's dead letters, and the act that redrives some of them.

The act has two steps. The first asks the brokers what would happen, and changes nothing. The second
needs the number of letters typed if there are many, and shows the outcome of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from eruca import HeldDeadLetter, Redriven, RedriveStep
from eruca.contract.errors import ValidationError
from eruca.contract.limits import REDRIVE_COUNT_MAX
from eruca_console.core import recipes
from eruca_console.core.facets import choices, matches
from eruca_console.core.fingerprints import fingerprint
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Fields, Page, Shown, Visit

LETTERS_MAX: Final = 1_000  # read for one page
COLUMNS: Final = ("died", "topic", "attempts")
FACETS: Final = ("reason", "topic", "error")
TYPED_ABOVE: Final = 10  # letters; more than these need their number typed
SECONDS_MAX: Final = 20.0  # that a redrive may take, for somebody waits for its page
PER_SECOND_DEFAULT: Final = 100.0
OUTCOMES: Final[Mapping[str, str]] = {
    "redriven": N_("redriven"),
    "skipped": N_("left out"),
    "not_found": N_("not found"),
}


async def view(visit: Visit) -> Shown:
    """Return a page of the dead letters.

    Raises:
        GroupNotFoundError: No broker knows the group.
    """
    group = visit.path["group"]
    path = f"/groups/{group}/dead-letters"
    state = ListState.of(path, visit.query, columns=COLUMNS, others=FACETS)
    answered = await visit.reading.dead_letters(group, LETTERS_MAX)
    letters, silent = answered.value.value, answered.value.silent
    matching = [one for one in letters if matches(one, state.others, _facet_of)]
    shown = listed(
        matching,
        state,
        name_of=lambda one: " ".join(
            filter(None, (one.letter.message_id, one.letter.last_error, place_of(one)))
        ),
        key_of={
            "died": lambda one: one.letter.dead_at,
            "topic": lambda one: one.letter.origin_topic,
            "attempts": lambda one: one.letter.attempts,
        },
        is_whole=visit.wants_file,
    )
    values: dict[str, Any] = {
        **_frame(group),
        "answered": answered,
        "silent": silent,
        "list": shown,
        "state": shown.state,
        "facets": choices(letters, state, FACETS, _facet_of),
        "is_cut": len(letters) == LETTERS_MAX,
        "letters_max": LETTERS_MAX,
        "place_of": place_of,
        "step": "choose",
    }
    table = CsvTable(
        f"dead-letters-of-{group}",
        (
            *("broker", "id", "topic", "message_id", "reason", "attempts"),
            *("error", "dead_at", "redriven_at"),
        ),
        [
            (
                *(one.broker_name, one.letter.dead_letter_id, one.letter.origin_topic),
                *(one.letter.message_id, one.letter.reason, one.letter.attempts),
                *(one.letter.last_error, one.letter.dead_at, one.letter.redriven_at),
            )
            for one in shown.rows
        ],
        is_whole=answered.value.is_whole and len(letters) < LETTERS_MAX,
    )
    return Shown(N_("Dead letters"), values, await _recipe(visit, group), table)


async def act(visit: Visit, fields: Fields) -> Shown:
    """Show what a redrive would do; or do it, and show the outcome of each letter.

    Raises:
        ValidationError: A field is missing or invalid.
    """
    group = visit.path["group"]
    chosen = _chosen(fields.get("letter", []))
    count = sum(map(len, chosen.values()))
    per_second = _rate(fields.get("per_second", [str(PER_SECOND_DEFAULT)])[0])
    is_done = fields.get("step", [""])[0] == "redrive"
    if is_done:
        typed = fields.get("typed", [""])[0].strip()
        if count > TYPED_ABOVE and typed != str(count):
            raise ValidationError(
                f"typed: expected {count}, the number of letters, found {typed[:20]!r}",
                fix="go back, and type the number of letters",
            )
        if count / per_second > SECONDS_MAX:
            raise ValidationError(
                f"per_second: {count} letters at {per_second:g} a second take longer than "
                f"{SECONDS_MAX:g} s",
                fix="redrive fewer of them here, or all by the command: eruca dlq redrive",
            )
    outcomes: list[Redriven] = []

    def note(step: RedriveStep) -> None:
        outcomes.extend(step.outcomes)

    summary = await visit.reading.client.admin.groups.redrive(
        group,
        ids=chosen,
        per_second=per_second if is_done else None,
        dry_run=not is_done,
        on_step=note,
    )
    visit.reading.cache.clear()
    values: dict[str, Any] = {
        **_frame(group),
        "step": "done" if is_done else "preview",
        "summary": summary,
        "outcomes": outcomes,
        "outcome_texts": OUTCOMES,
        "chosen": [f"{name}/{number}" for name, ids in chosen.items() for number in ids],
        "count": count,
        "needs_typing": count > TYPED_ABOVE,
        "per_second_default": f"{PER_SECOND_DEFAULT:g}",
    }
    return Shown(N_("Dead letters"), values, await _recipe(visit, group))


def place_of(one: HeldDeadLetter) -> str:
    """Return the name of a letter: its broker and its id."""
    return f"{one.broker_name}/{one.letter.dead_letter_id}"


def _frame(group: str) -> dict[str, Any]:
    return {"group": group, "path": f"/groups/{group}/dead-letters"}


def _facet_of(one: HeldDeadLetter, facet: str) -> str:
    if facet == "error":
        return fingerprint(one.letter.last_error)
    found = one.letter.reason if facet == "reason" else one.letter.origin_topic
    return found or ""


def _chosen(letters: Sequence[str]) -> dict[str, list[int]]:
    if not letters:
        raise ValidationError("letter: none is chosen", fix="choose at least one dead letter")
    if len(letters) > REDRIVE_COUNT_MAX:
        raise ValidationError(
            f"letter: expected at most {REDRIVE_COUNT_MAX}, found {len(letters)}",
            fix="choose fewer of them",
        )
    chosen: dict[str, list[int]] = {}
    for text in dict.fromkeys(letters):
        name, _, number = text.rpartition("/")
        if not (name and number.isascii() and number.isdecimal() and len(number) < 19):
            raise ValidationError(f"letter: expected BROKER/ID, found {text[:64]!r}")
        chosen.setdefault(name, []).append(int(number))
    return chosen


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.1 <= rate <= 100_000:
        raise ValidationError(
            f"per_second: expected a number from 0.1 to 100000, found {text[:20]!r}"
        )
    return rate


async def _recipe(visit: Visit, group: str) -> recipes.Recipe:
    url = f"{await visit.reading.any_broker_url()}/v1/groups/{group}/dead-letters"
    asked = {name: visit.query[name] for name in ("reason", "topic") if visit.query.get(name)}
    words = "".join(f", {name}={value!r}" for name, value in asked.items())
    return recipes.Recipe(
        recipes.curl(url + (f"?{urlencode(asked)}" if asked else ""), has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            f"for held in client.admin.groups.dead_letters({group!r}{words}):",
            "    print(held.broker_name, held.letter.dead_letter_id, held.letter.last_error)",
        ),
        recipes.cli("dlq", "list", group),
    )


PAGE: Final = Page(
    "dead_letters",
    "/groups/{group}/dead-letters",
    "groups",
    view,
    parents=((N_("Groups"), "/groups"),),
    act=act,
    is_live=False,
    is_named=False,
)
