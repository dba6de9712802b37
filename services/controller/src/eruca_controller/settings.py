"""The controller's settings, from ``ERUCA_CONTROLLER_*`` and ``DATABASE_URL``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from eruca_chassis.running.settings import checked_urls, split_urls
from eruca_postgres.settings import AnnouncedSettings

StoreKind = Literal["postgres", "etcd", "kubernetes", "file"]
ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # in each pod


class ControllerSettings(AnnouncedSettings):
    """The settings of a controller."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_CONTROLLER_")
    keeps_policy: ClassVar[bool] = True

    port: int = Field(
        default=9878, ge=0, le=65_535, description="port to listen on; 0: any free one"
    )
    store: StoreKind = Field(
        default="postgres",
        description="store of the broker groups. postgres: by DATABASE_URL, or embedded; etcd: by "
        "etcd_urls; kubernetes: ConfigMaps, by the pod's service account; file: by file, for "
        "controllers on one machine",
    )
    etcd_urls: Annotated[str, AfterValidator(checked_urls)] = Field(
        default="",
        validate_default=True,
        description="URLs of etcd's members, such as http://127.0.0.1:2379, separated by ';'",
    )
    etcd_prefix: str = Field(
        default="/eruca/",
        max_length=255,
        pattern=r"^[!-~]*/$",
        description="beginning of all keys in etcd; it ends with a slash",
    )
    etcd_user: str = Field(
        default="", max_length=255, description="user at etcd; empty: etcd asks for none"
    )
    etcd_password: SecretStr = Field(
        default=SecretStr(""), description="password of etcd_user", repr=False
    )
    kubernetes_url: Annotated[str, AfterValidator(checked_urls)] = Field(
        default="https://kubernetes.default.svc", description="URL of the Kubernetes API server"
    )
    kubernetes_namespace: str = Field(
        default="",
        pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$",
        description="namespace of the ConfigMaps; empty: the pod's own",
    )
    kubernetes_prefix: str = Field(
        default="eruca-group-",
        pattern=r"^[a-z0-9][a-z0-9-]{0,61}-$",
        description="beginning of the ConfigMaps' names; controllers that share it share the rows",
    )
    kubernetes_token_file: Path = Field(
        default=ACCOUNT_DIR / "token", description="file with the service account's token"
    )
    kubernetes_ca_file: Path = Field(
        default=ACCOUNT_DIR / "ca.crt",
        description="file with the certificate authority of the API server",
    )
    file: Path = Field(
        default=Path("controller") / "broker-groups.json",
        description="file of the broker groups; its history and its lock lie beside it",
    )
    groups_max: int = Field(
        default=10_000, ge=1, description="names that have a row, removed groups included"
    )
    history_count_max: int = Field(
        default=1_000, ge=10, le=1_000_000, description="changes kept for each broker group"
    )
    held_requests_max: int = Field(
        default=5_000, ge=0, description="requests held until a broker group changes"
    )

    def _policy_conflicts(self) -> list[str]:
        if self.auth == "controller" and self.store == "kubernetes":
            return [
                "ERUCA_AUTH=controller: rules are kept in postgres, etcd or file, and "
                "ERUCA_CONTROLLER_STORE is kubernetes; set ERUCA_AUTH_FILE instead, the same file "
                "at all services, for instance of a Secret"
            ]
        return []

    @field_validator("etcd_urls")
    @classmethod
    def _named_if_needed(cls, urls: str, info: ValidationInfo) -> str:
        if info.data.get("store") == "etcd" and not split_urls(urls):
            raise ValueError(
                "contains no URL, and ERUCA_CONTROLLER_STORE is etcd; expected one such as "
                "http://127.0.0.1:2379"
            )
        return urls
