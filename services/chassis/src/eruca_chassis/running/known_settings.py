"""Each setting of a service: its variable, its key in a file of settings, its default, its meaning.

``--help`` shows this list, and :mod:`.settings_file` reads files by it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from eruca_chassis.running.settings import SECRET_FILE_SUFFIX, ServiceSettings

SHARED_TABLE: Final = "shared"  # in a file: settings without the service's prefix
_SHARED_PREFIX: Final = "ERUCA_"
CREDENTIAL_VARIABLES: Final = {
    "ERUCA_API_KEY_FILE": "file with the key or token that it shows to other services; read again "
    "when it changes",
    "ERUCA_API_KEY": "the key itself; other processes of its user can read it",
    "ERUCA_TOKEN_PROVIDER": "PACKAGE.MODULE:FUNCTION that returns a token for other services",
    "ERUCA_TLS_CA_FILE": "authorities that it trusts as a client of other services; unset: those "
    "of the system",
    "ERUCA_TLS_CERT_FILE": "certificate that it shows to other services, in PEM form",
    "ERUCA_TLS_KEY_FILE": "its private key",
}
"""Variables of the SDK's clients, which every service has; the SDK itself reads them."""


class KnownSetting(NamedTuple):
    """A setting as operators see it."""

    variable: str
    key: str  # in a file; shared.NAME: NAME in the table [shared]
    default: str  # as it would be written, or a word in parentheses
    meaning: str


class KnownSettings(NamedTuple):
    """The settings of a service, by the services that have them."""

    own: list[KnownSetting]  # this service alone
    common: list[KnownSetting]  # every service
    shared: list[KnownSetting]  # read from variables that several programs share

    @property
    def all(self) -> list[KnownSetting]:
        """All of them."""
        return [*self.own, *self.common, *self.shared]


def known_settings(kind: type[ServiceSettings]) -> KnownSettings:
    """Return the settings of a service whose settings are *kind*."""
    known = KnownSettings([], [], [])
    for name, variable in kind.variables().items():
        is_of_all = kind.model_fields[name].description == _description_of_all(name)
        part = known.common if is_of_all else known.own
        if not variable.startswith(kind.prefix()):
            part = known.shared
        field = kind.model_fields[name]
        part.append(_setting(kind, variable, _shown(field), field.description or ""))
        if variable in kind.secret_files():
            file_variable = variable + SECRET_FILE_SUFFIX
            part.append(_setting(kind, file_variable, "(unset)", f"file that has {variable}"))
    known.shared.extend(
        _setting(kind, variable, "(unset)", meaning)
        for variable, meaning in CREDENTIAL_VARIABLES.items()
    )
    return known


def _description_of_all(name: str) -> str | None:
    field = ServiceSettings.model_fields.get(name)
    return None if field is None else field.description


def _setting(
    kind: type[ServiceSettings], variable: str, default: str, meaning: str
) -> KnownSetting:
    prefix = kind.prefix()
    if variable.startswith(prefix):
        key = variable.removeprefix(prefix).lower()
    else:
        key = f"{SHARED_TABLE}.{variable.removeprefix(_SHARED_PREFIX).lower()}"
    return KnownSetting(variable, key, default, meaning)


def _shown(field: FieldInfo) -> str:
    """Return a field's default as it would be written into the environment."""
    if field.is_required():
        return "(required)"
    default: Any = field.get_default()
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, bool):
        return str(default).lower()
    return "(unset)" if default is None else str(default) or "(empty)"
