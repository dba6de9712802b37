"""Findings about rules: missing ones, stale ones, different ones, and keys near their end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from eruca.cli.diagnosing.findings import Finding, Verdict
from eruca.cli.diagnosing.rule_findings import judged
from eruca.contract.policies import AccessKey, AccessStatus

NOW: Final = datetime(2026, 11, 27, tzinfo=UTC)


def status(**changed: Any) -> AccessStatus:  # noqa: ANN401
    return AccessStatus.model_validate(
        {
            "source": "controller",
            "version": "3-a",
            "age_seconds": 1,
            "fault": None,
            "rule_count": 1,
            "keys": [],
            "started_at": NOW - timedelta(days=30),
            **changed,
        }
    )


def key(key_id: str, *, days: float | None = None, is_used: bool = True) -> AccessKey:
    expires_at = None if days is None else NOW + timedelta(days=days)
    used_at = NOW if is_used else None
    return AccessKey(id=key_id, principal="user:a", expires_at=expires_at, last_used_at=used_at)


def found(*statuses: AccessStatus, is_local: bool = False) -> list[Finding]:
    by_name = {f"s{number}": one for number, one in enumerate(statuses)}
    return list(judged(by_name, {}, NOW, is_local=is_local))


def bad(*statuses: AccessStatus) -> list[tuple[str, str, Verdict]]:
    return [
        (one.subject, one.check, one.verdict)
        for one in found(*statuses)
        if one.verdict is not Verdict.OK
    ]


def test_rules_that_are_the_same_everywhere_are_well() -> None:
    assert bad(status(), status()) == []


def test_no_rules_are_a_warning_beyond_this_machine() -> None:
    none = status(source="none", version=None)
    [warning] = found(none, none)
    assert (warning.verdict, warning.check) == (Verdict.WARNING, "present")
    [fine] = found(none, is_local=True)
    assert fine.verdict is Verdict.OK
    assert "everybody" in fine.detail


def test_a_service_without_rules_among_others_is_a_fault() -> None:
    assert bad(status(), status(source="none", version=None)) == [("s1", "rules", Verdict.FAULT)]


def test_stale_and_missing_rules_are_faults_and_old_ones_a_warning() -> None:
    assert bad(status(fault="the file has a mistake")) == [("s0", "rules", Verdict.FAULT)]
    assert bad(status(version=None, fault="401")) == [("s0", "rules", Verdict.FAULT)]
    assert bad(status(age_seconds=301)) == [("s0", "rules", Verdict.WARNING)]


def test_versions_that_differ_are_a_warning_that_names_both() -> None:
    assert bad(status(), status(version="4-b")) == [("rules", "agreement", Verdict.WARNING)]
    [differing] = [one for one in found(status(), status(version="4-b")) if one.fix]
    assert "s0: 3-a" in differing.detail
    assert "s1: 4-b" in differing.detail


def test_keys_near_their_end_are_named_and_those_behind_it_are_no_warning() -> None:
    keys = [key("soon", days=13), key("later", days=15), key("over", days=-1), key("ever")]
    assert bad(status(keys=keys)) == [("rules", "keys", Verdict.WARNING)]
    details = {one.check: one.detail for one in found(status(keys=keys))}
    assert details["keys"] == "expire within 14 days: soon of user:a"
    assert details["old keys"] == "have expired: over of user:a"


def test_a_key_is_unused_if_no_service_saw_it_for_a_week() -> None:
    unused, used = [key("k", is_used=False)], [key("k")]
    assert bad(status(keys=unused), status(keys=used)) == []
    assert bad(status(keys=unused)) == [("rules", "unused keys", Verdict.WARNING)]
    young = status(keys=unused, started_at=NOW - timedelta(days=6))
    assert bad(status(keys=unused), young) == []


def test_a_service_that_does_not_show_its_rules_is_named() -> None:
    [finding] = judged({}, {"broker-a": "status 403"}, NOW, is_local=False)
    assert (finding.subject, finding.verdict) == ("broker-a", Verdict.WARNING)
