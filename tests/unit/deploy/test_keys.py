"""Rules and keys of a local cluster: one for each kind of service, private, and kept."""

from __future__ import annotations

from netrc import netrc as Netrc  # noqa: N812 - it is a class
from pathlib import Path

import pytest

from eruca.contract.access import Resource, Right
from eruca.core.access.api_keys import presented_key, proves
from eruca.core.access.policy import Policy
from eruca.core.access.policy_text import parse_policy
from eruca_deploy.keys import ROLES, made_keys


def files_of(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in directory.iterdir()}


def test_keys_are_made_once_and_only_their_user_reads_them(tmp_path: Path) -> None:
    keys = made_keys(tmp_path, tmp_path / "ca.pem")
    first = files_of(keys.directory)
    made_keys(tmp_path, tmp_path / "ca.pem")
    assert files_of(keys.directory) == first
    assert {file.stat().st_mode & 0o777 for file in keys.directory.iterdir()} == {0o600}
    assert keys.directory.stat().st_mode & 0o777 == 0o700
    secrets = [text.strip() for name, text in first.items() if name.endswith(".key")]
    assert len(set(secrets)) == len(ROLES) + 1  # the administrator's, and nobody else's
    assert not any(secret in first["rules.toml"] for secret in secrets)


def test_curl_sends_the_key_to_this_machine_alone(tmp_path: Path) -> None:
    keys = made_keys(tmp_path, tmp_path / "ca.pem")
    secret = keys.administrator_file.read_text().strip()
    netrc = keys.directory / "netrc"
    settings = (keys.directory / ".curlrc").read_text()
    assert secret not in settings
    assert f'netrc-file = "{netrc}"' in settings
    logins = Netrc(str(netrc))
    assert logins.hosts.keys() == {"localhost", "127.0.0.1", "::1"}
    assert {password for _, _, password in logins.hosts.values()} == {secret}


@pytest.mark.parametrize("module", ROLES)
def test_a_service_may_not_change_the_cluster(tmp_path: Path, module: str) -> None:
    keys = made_keys(tmp_path, tmp_path / "ca.pem")
    document = parse_policy(keys.rules_file.read_text())
    presented = presented_key(keys.key_file(ROLES[module]).read_text().strip())
    assert presented is not None
    [stored] = [key for key in document.keys if key.id == presented.id]
    assert proves(presented, stored.sha256)
    policy = Policy(document)
    for right, resource in (
        (Right.ADMINISTER, "cluster"),
        (Right.ADMINISTER, "topic:orders"),
        (Right.ADMINISTER, "group:billing"),
    ):
        assert not policy.decide(stored.principal, right, Resource.of(resource)).allowed


def test_a_key_that_is_gone_is_replaced(tmp_path: Path) -> None:
    keys = made_keys(tmp_path, tmp_path / "ca.pem")
    old = keys.key_file("broker").read_text()
    keys.key_file("broker").unlink()
    made_keys(tmp_path, tmp_path / "ca.pem")
    new = presented_key(keys.key_file("broker").read_text().strip())
    assert new is not None
    assert keys.key_file("broker").read_text() != old
    stored = {key.id: key for key in parse_policy(keys.rules_file.read_text()).keys}
    assert proves(new, stored[new.id].sha256)
