"""The commit log: its segments, and the batches being written to it."""
