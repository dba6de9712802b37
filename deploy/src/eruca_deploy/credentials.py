"""``python -m eruca_deploy.credentials FOLDER NAME…``: certificates and keys for containers.

They are those of ``eruca-local --secure``, with one folder for each kind of service, so that a
container gets what its service needs and nothing else::

    FOLDER/all/              the authority, the rules, every key: for no container
    FOLDER/broker/           ca.pem, service.pem, service.key, rules.toml, api.key
    FOLDER/query-service/    the same, and database.url; so has every other role of services
    FOLDER/administrator/    ca.pem and api.key, for a person
    FOLDER/prometheus/       ca.pem and api.key, for reading metrics
    FOLDER/postgres/         password
    FOLDER/grafana/          password

Run again, it keeps what there is, renews a certificate that is near its end or lacks a NAME, and
writes the folders again. Files are readable for their user only. Those of ``prometheus``,
``postgres`` and ``grafana`` are readable for everybody, because these images have users of their
own: mount each folder into its container and nowhere else.

Exit codes: 0; 1: a file cannot be written; 2: an argument is missing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from eruca.core.access.first_policy import ADMINISTRATOR, SERVICE_ROLES, made_key
from eruca.core.access.policy_text import with_key
from eruca_deploy.certificates import Certificates, made_certificates
from eruca_deploy.keys import ClusterKeys, made_keys
from eruca_deploy.private_files import replace_file

PROMETHEUS: Final = "prometheus"
DATABASE_HOST: Final = "postgres"
DATABASE: Final = "eruca"  # and its user
DATABASE_ROLES: Final = frozenset({"controller", "query-service", "transaction-checker"})
_METRICS_RULE: Final = f"""
[[rules]]
allow = ["query"]
on = ["cluster"]
to = ["service:{PROMETHEUS}"]
"""


def made_credentials(folder: Path, names: Collection[str]) -> None:
    """Make what is missing in *folder*, for services of these *names*.

    Raises:
        OSError: A file cannot be written.
    """
    certificates = made_certificates(folder / "all", names)
    keys = made_keys(folder / "all", certificates.ca_file)
    _made_metrics_key(keys)
    passwords = {
        name: _made_secret(keys.directory / f"{name}.password") for name in ("postgres", "grafana")
    }
    ca = certificates.ca_file.read_text()
    url = f"postgresql://{DATABASE}:{passwords['postgres']}@{DATABASE_HOST}:5432/{DATABASE}\n"
    for role in SERVICE_ROLES:
        files = _service_files(role, certificates, keys)
        if role in DATABASE_ROLES:
            files["database.url"] = url
        _write_all(folder / role, files, mode=0o600)
    for role, mode in ((ADMINISTRATOR, 0o600), (PROMETHEUS, 0o644)):
        files = {"ca.pem": ca, "api.key": keys.key_file(role).read_text()}
        _write_all(folder / role, files, mode=mode)
    for name, password in passwords.items():
        _write_all(folder / name, {"password": password}, mode=0o644)


def _service_files(role: str, certificates: Certificates, keys: ClusterKeys) -> dict[str, str]:
    return {
        "ca.pem": certificates.ca_file.read_text(),
        "service.pem": certificates.cert_file.read_text(),
        "service.key": certificates.key_file.read_text(),
        "rules.toml": keys.rules_file.read_text(),
        "api.key": keys.key_file(role).read_text(),
    }


def _made_metrics_key(keys: ClusterKeys) -> None:
    """Add a key that reads metrics, and its rule."""
    if keys.key_file(PROMETHEUS).exists():
        return
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    key, stored = made_key(f"service:{PROMETHEUS}", secrets.token_bytes, created_at=now)
    text = keys.rules_file.read_text()
    if _METRICS_RULE not in text:
        text += _METRICS_RULE
    replace_file(keys.rules_file, with_key(text, stored))
    replace_file(keys.key_file(PROMETHEUS), f"{key}\n")  # last: with it, all is there


def _made_secret(path: Path) -> str:
    if not path.exists():
        replace_file(path, secrets.token_urlsafe(24))
    return path.read_text()


def _write_all(folder: Path, files: Mapping[str, str], *, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode | (mode & 0o444) >> 2)  # who may read the files may enter
    for name, text in files.items():
        replace_file(folder / name, text, mode=mode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the credentials; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m eruca_deploy.credentials",
        description="Make certificates, rules, keys and passwords for services in containers.",
    )
    parser.add_argument("folder", type=Path, help="directory of the folders; created if missing")
    parser.add_argument("names", nargs="+", metavar="NAME", help="host name of a service")
    options = parser.parse_args(arguments)
    try:
        made_credentials(options.folder.absolute(), options.names)
    except OSError as error:
        print(f"error: {error}; choose another folder", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
