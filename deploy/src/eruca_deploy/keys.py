"""Rules and API keys for a local cluster.

They are made once, in ``auth/`` of the data directory, and kept. Each kind of service has a key and
a role of its own, with the rights that it needs and no others. The person who started the cluster
has the administrator's key.

``.curlrc`` is for curl: with ``CURL_HOME`` it sends the key to this machine, trusts the cluster's
authority, and takes a URL without a scheme for one of https. The key is in ``netrc``, by hosts:
curl would send a key in ``.curlrc`` to whatever host it is given.
"""

from __future__ import annotations

import datetime as dt
import getpass
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eruca.core.access.first_policy import (
    ADMINISTRATOR,
    SERVICE_ROLES,
    first_policy,
    made_key,
    service_principal,
)
from eruca.core.access.policy_text import with_key
from eruca_deploy.plan import (
    BROKER_MODULE,
    CONSOLE_MODULE,
    CONTROLLER_MODULE,
    NAMESRV_MODULE,
    QUERY_MODULE,
    TXN_CHECKER_MODULE,
)
from eruca_deploy.private_files import replace_file

DIRECTORY: Final = "auth"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")  # to which curl sends the key
ROLES: Final[Mapping[str, str]] = {
    NAMESRV_MODULE: "name-server",
    BROKER_MODULE: "broker",
    TXN_CHECKER_MODULE: "transaction-checker",
    QUERY_MODULE: "query-service",
    CONTROLLER_MODULE: "controller",
    CONSOLE_MODULE: "console",
}
"""The role of each kind of service."""


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The files of a cluster's rules and keys."""

    directory: Path

    @property
    def rules_file(self) -> Path:
        """The file of rules, which holds digests only."""
        return self.directory / "rules.toml"

    @property
    def administrator_file(self) -> Path:
        """The file with the key of the person who started the cluster."""
        return self.key_file(ADMINISTRATOR)

    def key_file(self, role: str) -> Path:
        """Return the file with the key of a role."""
        return self.directory / f"{role}.key"

    def settings(self) -> dict[str, str]:
        """Return the environment of a person, and of services that have no key of their own."""
        return {
            "ERUCA_AUTH": "",
            "ERUCA_AUTH_FILE": str(self.rules_file),
            "ERUCA_API_KEY_FILE": str(self.administrator_file),
        }

    def service_settings(self, module: str) -> dict[str, str]:
        """Return the environment with which a service of *module* proves itself."""
        return {"ERUCA_API_KEY_FILE": str(self.key_file(ROLES[module]))}


def made_keys(data_dir: Path, ca_file: Path) -> ClusterKeys:
    """Return the rules and keys of the cluster in *data_dir*; make those that are missing."""
    keys = ClusterKeys(data_dir / DIRECTORY)
    keys.directory.mkdir(0o700, parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    principals = {role: service_principal(role) for role in SERVICE_ROLES}
    principals[ADMINISTRATOR] = f"user:{getpass.getuser()}"
    if not keys.rules_file.exists():
        made = first_policy(principals[ADMINISTRATOR], secrets.token_bytes, created_at=now)
        for role, key in {**made.service_keys, ADMINISTRATOR: made.administrator_key}.items():
            replace_file(keys.key_file(role), f"{key}\n")
        replace_file(keys.rules_file, made.text)  # last: with it, all keys are there
    for role, principal in principals.items():
        if not keys.key_file(role).exists():
            key, stored = made_key(principal, secrets.token_bytes, created_at=now)
            replace_file(keys.rules_file, with_key(keys.rules_file.read_text(), stored))
            replace_file(keys.key_file(role), f"{key}\n")
    secret = keys.administrator_file.read_text().strip()
    replace_file(
        keys.directory / "netrc",
        "".join(f"machine {host} login key password {secret}\n" for host in _HOSTS),
    )
    replace_file(
        keys.directory / ".curlrc",
        f'netrc-optional\nnetrc-file = "{keys.directory / "netrc"}"\n'
        f'cacert = "{ca_file}"\nproto-default = "https"\n',
    )
    return keys
