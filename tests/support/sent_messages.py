"""The messages of a topic, as an export without Spark reads them, for tests that count them."""

from __future__ import annotations

from collections import Counter

from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from pyspark_eruca.table import pinned_ranges


def stored_bodies(query_url: str, topic: str) -> Counter[bytes]:
    """Return how often each body is in the topic."""
    options = Options.parse({"url": query_url, "topic": topic, "columns": "queue_offset,body"})
    exports = Exports(options)
    bodies: Counter[bytes] = Counter()
    for batch in exports.read(pinned_ranges(options, exports)):
        bodies.update(batch.column("body").to_pylist())
    return bodies
