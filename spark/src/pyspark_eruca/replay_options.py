"""A replay's options, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eruca.exporting.credentials import CredentialFiles
from eruca.exporting.exports import Exports
from eruca.exporting.option_texts import OptionTexts
from eruca.exporting.options import Options


@dataclass(frozen=True)
class ReplayOptions:
    """A user's options of a replay, validated."""

    namesrvs: tuple[str, ...]
    urls: tuple[str, ...]  # of query services, which know the messages replayed before
    topic: str  # the target
    replay: str  # the name of the replay: another run with the same name continues it
    replay_from: str | None  # RFC 3339: no message of the replay is older
    is_forced: bool  # allows the topic of origin as the target
    damaged: str  # for messages of the target, which may belong to the replay: "refuse" or "mark"
    summary_file: str | None
    patience_seconds: float
    timeout_seconds: float
    files: CredentialFiles

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReplayOptions:
        """Return the options of a writer.

        Raises:
            OptionError: An option is missing, unknown or invalid.
        """
        texts = OptionTexts(given)
        topic = texts.text("topic") or texts.needed("path", "set it to the target topic")
        return cls(
            namesrvs=texts.urls("namesrv", "ERUCA_NAMESRV_URLS"),
            urls=texts.urls("url", "ERUCA_QUERY_URLS"),
            topic=topic,
            replay=texts.needed(
                "replay",
                "set it to a name for the replay; a second run with the same name continues it",
            ),
            replay_from=texts.text("replayFrom"),
            is_forced=texts.flag("force", default=False),
            damaged=texts.choice("damaged", ("refuse", "mark")),
            summary_file=texts.text("summaryFile"),
            patience_seconds=texts.seconds("retrySeconds", 300.0),
            timeout_seconds=texts.seconds("timeoutSeconds", 60.0),
            files=texts.credential_files(),
        )

    def exports(self) -> Exports:
        """Return exports of the target, to find messages that were already replayed.

        Messages that are deleted there are no loss to a replay. But a broker that is away may have
        messages of the replay, which would be sent again. A damaged message may belong to the
        replay, too: with ``damaged=mark`` it is reported on stderr, and may be sent again.
        """
        given = {
            "url": ";".join(self.urls),
            "topic": self.topic,
            "columns": "message_id,properties,damage",
            "damaged": self.damaged,
            "failOnDataLoss": "false",
            "retrySeconds": str(self.patience_seconds),
            "timeoutSeconds": str(self.timeout_seconds),
            "apiKeyFile": self.files.api_key or "",
            "caFile": self.files.ca or "",
            "certFile": self.files.cert or "",
            "keyFile": self.files.key or "",
        }
        return Exports(
            Options.parse(given),
            never_lacks="its messages of the replay would be sent again; if the replay began"
            " later than its messages, set that time: replayFrom",
        )
