"""The part of a message's life that a caller may see."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from eruca.contract.queries import Timeline
from eruca_access.gate import PolicyGate
from eruca_access.sources import FileSource
from eruca_chassis.admission.gate import Access, Asked, admit
from eruca_chassis.admission.needs import KNOWN
from eruca_query.api import examples
from eruca_query.api.rights import visible_timeline
from support.rules import bearer, write_rules

READS = {"allow": ["query"], "on": ["topic:flights"], "to": ["user:ann"]}
KNOWS_GROUP = {"allow": ["query"], "on": ["group:billing"], "to": ["user:ann"]}


def access_by(tmp_path: Path, *rules: dict[str, Any]) -> Access:
    gate = PolicyGate(FileSource(write_rules(tmp_path / "rules.toml", *rules)))
    headers = {name.encode(): value.encode() for name, value in bearer("user:ann").items()}
    asked = Asked(KNOWN, {}, b"", headers, "127.0.0.1")
    return Access(admit(gate, asked), "127.0.0.1", lambda: asked)


def timeline() -> Timeline:
    """Return a message's life with an acknowledgement, whose place is the message's own."""
    example: dict[str, Any] = copy.deepcopy(examples.TIMELINE)
    example["events"].append(
        example["events"][0] | {"kind": "acked", "detail": {"group": "billing"}}
    )
    return Timeline.model_validate(example)


@pytest.mark.parametrize(
    ("rules", "kinds", "groups"),
    [((READS,), ["stored"], []), ((READS, KNOWS_GROUP), ["stored", "acked"], ["billing"])],
    ids=["hidden", "shown"],
)
def test_a_timeline_names_no_group_on_which_the_caller_has_no_right(
    tmp_path: Path, rules: tuple[dict[str, Any], ...], kinds: list[str], groups: list[str]
) -> None:
    whole = timeline()
    shown = visible_timeline(access_by(tmp_path, *rules), whole, whole.message_id or "")
    assert [event.kind for event in shown.events] == kinds
    assert [group.group for group in shown.groups] == groups
