"""Decisions without I/O: what the log's bytes say, and how that is told in rows and answers."""
