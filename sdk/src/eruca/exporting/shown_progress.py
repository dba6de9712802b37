"""Show a stream's progress beside consumer groups: as the offsets of a group that only shows it.

After each micro-batch the stream commits where it continues, as a group's offsets. So ``eruca group
lag`` and the console list it with its lag. Nothing reads these offsets back: the checkpoint, or the
table of an export, stays the only record of progress.

The group's name begins with ``spark-``, so that no option moves the offsets of consumers.

A refusal of the first commit is an error: the group or a right is missing. Later the stream goes on
without showing its progress, and says so on stderr: it must not fail because of that.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from urllib.parse import quote

from eruca.exporting.credentials import credentials_of
from eruca.exporting.errors import RefusedError, SourceError
from eruca.exporting.options import Options
from eruca.exporting.ranges import Queue
from eruca.exporting.service import TRANSIENT, Service

_OFFSETS_AT_ONCE: Final = 1_024  # in one request, the broker's limit


class ShownProgress:
    """Commits a stream's positions for people to see.

    Args:
        options: With a group, and name servers.
    """

    def __init__(self, options: Options) -> None:
        assert options.progress_group is not None
        self._group = options.progress_group
        self._options = options
        self._shown: Mapping[Queue, int] = {}

    def show(self, positions: Mapping[Queue, int]) -> None:
        """Show where the stream continues.

        Raises:
            RefusedError: A broker refused the first commit.
        """
        if positions == self._shown:
            return
        try:
            self._commit(positions)
        except RefusedError as error:
            if not self._shown:
                raise
            self._tell(error)
        except (*TRANSIENT, SourceError) as error:
            self._tell(error)
        else:
            self._shown = dict(positions)

    def _tell(self, error: Exception) -> None:
        print(f"progress is not shown as group {self._group} now: {error}", file=sys.stderr)

    def _commit(self, positions: Mapping[Queue, int]) -> None:
        by_broker: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
        for queue, offset in sorted(positions.items()):
            by_broker[queue.broker_name].append(
                {"topic": queue.topic, "queue_id": queue.queue_id, "offset": offset}
            )
        urls = self._urls({queue.topic for queue in positions})
        path = f"/v1/groups/{quote(self._group, safe='')}/offsets"
        for broker_name, offsets in by_broker.items():
            if broker_name not in urls:
                raise SourceError(f"no name server knows the master of {broker_name}")
            with closing(self._service((urls[broker_name],))) as broker:
                for at in range(0, len(offsets), _OFFSETS_AT_ONCE):
                    body = json.dumps({"offsets": offsets[at : at + _OFFSETS_AT_ONCE]})
                    broker.kept_request("PUT", path, (), body=body.encode())

    def _urls(self, topics: set[str]) -> dict[str, str]:
        """Return the URL of each broker's master."""
        urls: dict[str, str] = {}
        with closing(self._service(self._options.namesrvs)) as namesrv:
            for topic in sorted(topics):
                path = f"/v1/topics/{quote(topic, safe='')}/route"
                _, content = namesrv.kept_request("GET", path, ())
                for broker in json.loads(content)["brokers"]:
                    if url := broker["urls"].get("0", {}).get("default"):
                        urls[broker["broker_name"]] = url
        return urls

    def _service(self, urls: tuple[str, ...]) -> Service:
        return Service(
            urls,
            timeout=self._options.timeout_seconds,
            patience=self._options.patience_seconds,
            credentials=credentials_of(os.environ, self._options.files),
        )
