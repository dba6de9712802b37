"""The effects of a change of the rules, as rows."""

from __future__ import annotations

from eruca.contract.policies import AccessDifference, PolicyDifferences
from eruca_console.core.policy_changes import Effect, effects_of


def test_each_effect_says_whose_it_is_and_what_it_takes() -> None:
    lost = AccessDifference(
        principal="user:a", right="consume", on="topic:t", before="allowed", after="refused"
    )
    differences = PolicyDifferences(
        rights=[lost],
        right_count=1,
        keys_added=["k1 of user:a"],
        keys_removed=["k2 of user:b"],
        keys_changed=["k3 of user:c"],
        issuers_added=["idp"],
        quotas_removed=["10 to user:a"],
        namespaces_added=["team. for user:a"],
    )

    found = effects_of(differences)

    assert found == [
        Effect("right", "user:a", "consume topic:t", "allowed", "refused"),
        Effect("key", "k1 of user:a", after="valid"),
        Effect("key", "k2 of user:b", before="valid"),
        Effect("key", "k3 of user:c", before="valid", after="changed"),
        Effect("issuer", "idp", after="valid"),
        Effect("quota", "10 to user:a", before="valid"),
        Effect("namespace", "team. for user:a", after="valid"),
    ]
    assert [one.subject for one in found if one.takes_away] == [
        "user:a",
        "k2 of user:b",
        "10 to user:a",
    ]
