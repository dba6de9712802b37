"""The commit log: its segments, and batches on their way into it."""
