"""Options that several commands have: no secret in a command line."""

from __future__ import annotations

import pytest
import typer

from eruca_spark.command_options import settings_of


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.lake.me.dfs.core.windows.net",
        "spark.sql.catalog.lake.credential",
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.kubernetes.authenticate.oauthToken",
        "spark.sql.catalog.profile.token",
    ],
)
def test_secrets_in_settings_are_refused_and_not_shown(name: str) -> None:
    with pytest.raises(typer.BadParameter, match="no secret in the command line") as caught:
        settings_of(["spark.ui.enabled=false", f"{name}=hidden"])
    assert name in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.endpoint",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.authenticate.secret.driver.file",
        "spark.authenticate.secretBitLength",
        "spark.kubernetes.driver.secrets.lake-key",
        "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY",
        "spark.kubernetes.authenticate.oauthTokenFile",
        "spark.security.credentials.hive.enabled",
    ],
)
def test_settings_without_secrets_are_taken(name: str) -> None:
    assert settings_of([f"{name}=x"]) == {name: "x"}
