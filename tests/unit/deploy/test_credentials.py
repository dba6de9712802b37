"""Credentials for containers: each folder has what its service needs, and no more."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from eruca.core.access.first_policy import SERVICE_ROLES
from eruca.core.access.policy_text import parse_policy
from eruca_deploy.credentials import main


def made(folder: Path, *names: str) -> dict[str, str]:
    assert main([str(folder), *(names or ("broker-a-1",))]) == 0
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_each_service_has_a_folder_of_its_own(tmp_path: Path) -> None:
    files = made(tmp_path)

    keys = {role: files[f"{role}/api.key"] for role in SERVICE_ROLES}
    assert len({*keys.values()}) == len(SERVICE_ROLES)
    for role in SERVICE_ROLES:
        own = [text for name, text in files.items() if name.startswith(f"{role}/")]
        assert [key for key in keys.values() if key in own] == [keys[role]]
        assert files["all/tls/ca.key"] not in own


def test_only_services_with_a_database_know_its_password(tmp_path: Path) -> None:
    files = made(tmp_path)

    password = files["postgres/password"]
    assert {name.split("/")[0] for name, text in files.items() if password in text} == {
        *("all", "postgres", "controller", "query-service", "transaction-checker")
    }


def test_prometheus_may_read_metrics_and_nothing_else(tmp_path: Path) -> None:
    policy = parse_policy(made(tmp_path)["broker/rules.toml"])

    [rule] = [rule for rule in policy.rules if "service:prometheus" in rule.to]
    assert (rule.allow, rule.on) == (["query"], ["cluster"])
    assert "service:prometheus" in {key.principal for key in policy.keys}


def test_a_second_run_keeps_what_there_is(tmp_path: Path) -> None:
    first = made(tmp_path)

    assert made(tmp_path) == first


def test_a_new_name_renews_the_certificate_under_the_same_authority(tmp_path: Path) -> None:
    first = made(tmp_path, "broker-a-1")
    second = made(tmp_path, "broker-a-1", "broker-b-1", "10.0.0.7")

    certificate = x509.load_pem_x509_certificate(second["broker/service.pem"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"broker-a-1", "broker-b-1"} <= {*names.get_values_for_type(x509.DNSName)}
    assert "10.0.0.7" in map(str, names.get_values_for_type(x509.IPAddress))
    assert second["broker/ca.pem"] == first["broker/ca.pem"]
    assert second["broker/api.key"] == first["broker/api.key"]


def test_files_of_services_are_private(tmp_path: Path) -> None:
    made(tmp_path)

    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "broker").iterdir()}
    assert {*modes.values()} == {0o600}
    assert stat.S_IMODE((tmp_path / "broker").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "prometheus" / "api.key").stat().st_mode) == 0o644


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert main([str(tmp_path / "file" / "folder"), "broker-a-1"]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
