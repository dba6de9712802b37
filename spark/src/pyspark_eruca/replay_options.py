"""A replay's options, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_eruca.exports import Exports
from pyspark_eruca.option_texts import OptionTexts
from pyspark_eruca.options import Options


@dataclass(frozen=True)
class ReplayOptions:
    """A user's options of a replay, validated."""

    namesrvs: tuple[str, ...]
    urls: tuple[str, ...]  # of query services, which tell what has been replayed before
    topic: str  # where to
    replay: str  # the name of the replay: the same one again goes on where it ended
    replay_from: str | None  # RFC 3339: nothing of it was sent before
    is_forced: bool  # into the topic it came from
    damaged: str  # messages of the target, which may be of the replay: "refuse", or "mark"
    summary_file: str | None
    patience_seconds: float
    timeout_seconds: float

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReplayOptions:
        """Return the options of a writer.

        Raises:
            OptionError: One is missing, unknown, or says what cannot be.
        """
        texts = OptionTexts(given)
        topic = texts.text("topic") or texts.needed("path", "the topic to send to, as topic")
        return cls(
            namesrvs=texts.urls("namesrv", "ERUCA_NAMESRV_URLS"),
            urls=texts.urls("url", "ERUCA_QUERY_URLS"),
            topic=topic,
            replay=texts.needed("replay", "a name for the replay; run again under it, it goes on"),
            replay_from=texts.text("replayFrom"),
            is_forced=texts.flag("force", default=False),
            damaged=texts.choice("damaged", ("refuse", "mark")),
            summary_file=texts.text("summaryFile"),
            patience_seconds=texts.seconds("retrySeconds", 300.0),
            timeout_seconds=texts.seconds("timeoutSeconds", 60.0),
        )

    def exports(self) -> Exports:
        """Return the target's exports, of what tells what has been replayed.

        Messages that are deleted there are no loss to a replay. But a broker that is away may hold
        messages of it, which would be sent once more. So may a damaged message be of it: with
        ``damaged=mark`` it is named on stderr, and may be sent again.
        """
        given = {
            "url": ";".join(self.urls),
            "topic": self.topic,
            "columns": "message_id,properties,damage",
            "damaged": self.damaged,
            "failOnDataLoss": "false",
            "retrySeconds": str(self.patience_seconds),
            "timeoutSeconds": str(self.timeout_seconds),
        }
        return Exports(
            Options.parse(given),
            never_lacks="what it has of the replay would be sent again; if that began later than "
            "what is there, say when: replayFrom",
        )
