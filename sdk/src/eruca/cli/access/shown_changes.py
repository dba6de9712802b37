"""Changes of a policy in words: who gains and loses what, and the question before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from eruca.contract.policies import PolicyDifferences

_SHOWN_COUNT: Final = 50  # rights of one change
_LOSERS_SHOWN: Final = 5  # in a question


def show_differences(say: Callable[[str], None], differences: PolicyDifferences) -> None:
    """Say the rights and keys that a change gives and takes, one per line."""
    for one in differences.rights[:_SHOWN_COUNT]:
        verb = {"allowed": "gains", "refused": "loses"}.get(one.after, "changes")
        how = "" if verb != "changes" else f": {one.before} -> {one.after}"
        say(f"  {one.principal} {verb} {one.right} on {one.on}{how}")
    more = differences.right_count - min(len(differences.rights), _SHOWN_COUNT)
    if more:
        say(f"  and {more} more")
    of_others = [
        (f"key {key}", verb)
        for verb, keys in (
            ("is added", differences.keys_added),
            ("is removed", differences.keys_removed),
            ("expires at another time", differences.keys_changed),
        )
        for key in keys
    ] + [
        (f"issuer {name}", verb)
        for verb, names in (
            ("is added", differences.issuers_added),
            ("is removed", differences.issuers_removed),
            ("changes", differences.issuers_changed),
        )
        for name in names
    ]
    of_others += [(f"quota {quota}", "is added") for quota in differences.quotas_added]
    of_others += [(f"quota {quota}", "is removed") for quota in differences.quotas_removed]
    of_others += [(f"namespace {one}", "is added") for one in differences.namespaces_added]
    of_others += [(f"namespace {one}", "is removed") for one in differences.namespaces_removed]
    for what, verb in of_others:
        say(f"  {what} {verb}")
    if not differences.right_count and not of_others:
        say("  nobody gains or loses anything")


def question_before(differences: PolicyDifferences) -> str | None:
    """Return what to ask before a change; None: nobody loses anything."""
    from eruca.core.access.differences import losers

    lost = losers(differences)
    if not lost:
        return None
    more = f" and {len(lost) - _LOSERS_SHOWN} more" if len(lost) > _LOSERS_SHOWN else ""
    return f"Take something away from {', '.join(lost[:_LOSERS_SHOWN])}{more}?"
