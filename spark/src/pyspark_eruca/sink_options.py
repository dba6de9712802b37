"""The options of a frame's writer, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eruca.exporting.credentials import CredentialFiles
from eruca.exporting.errors import OptionError
from eruca.exporting.option_texts import OptionTexts
from pyspark_eruca.sending import IDEMPOTENCY_WINDOW_DEFAULT

_PREFIX: Final = re.compile(r"[A-Za-z0-9._:/=@+-]{1,150}")
SINK_OPTIONS: Final = (
    "namesrv",
    "topic",
    "path",
    "idempotencyPrefix",
    "idempotencyKeyColumn",
    "idempotencyWindowSeconds",
    "failOnDoubledRows",
    "summaryFile",
    "retrySeconds",
    "timeoutSeconds",
    "apiKeyFile",
    "caFile",
    "certFile",
    "keyFile",
    "checkpointLocation",
    "queryName",
)
_NAMES: Final = frozenset(name.lower() for name in SINK_OPTIONS)


@dataclass(frozen=True)
class SinkOptions:
    """A user's options of a writer, validated."""

    namesrvs: tuple[str, ...]
    topic: str | None  # of all rows; None: the column topic
    prefix: str | None  # the beginning of all idempotency keys; None: a new one
    key_column: str | None  # of a row's own idempotency key
    window_seconds: float  # how long brokers know an idempotency key
    fail_on_doubled: bool  # if an earlier attempt had other partitions; else it is reported
    summary_file: str | None
    patience_seconds: float
    timeout_seconds: float
    files: CredentialFiles

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Return the options of a writer.

        Raises:
            OptionError: An option is missing, unknown or invalid.
        """
        texts = OptionTexts(given)
        if others := [name for name in given if name.lower() not in _NAMES]:
            raise OptionError(
                f"option {others[0]} is of a reader or a replay; remove it from the writer"
            )
        prefix = texts.text("idempotencyPrefix")
        if prefix is not None and not _PREFIX.fullmatch(prefix):
            raise OptionError(
                "option idempotencyPrefix: expected 1 to 150 letters, digits or . _ : / = @ + -,"
                f" found {prefix!r}"
            )
        key_column = texts.text("idempotencyKeyColumn")
        if prefix is not None and key_column is not None:
            raise OptionError(
                "options idempotencyPrefix and idempotencyKeyColumn exclude each other: a column's"
                " values are the whole keys; remove one"
            )
        return cls(
            namesrvs=texts.urls("namesrv", "ERUCA_NAMESRV_URLS"),
            topic=texts.text("topic") or texts.text("path"),
            prefix=prefix,
            key_column=key_column,
            window_seconds=texts.seconds("idempotencyWindowSeconds", IDEMPOTENCY_WINDOW_DEFAULT),
            fail_on_doubled=texts.flag("failOnDoubledRows", default=True),
            summary_file=texts.text("summaryFile"),
            patience_seconds=texts.seconds("retrySeconds", 300.0),
            timeout_seconds=texts.seconds("timeoutSeconds", 60.0),
            files=texts.credential_files(),
        )
