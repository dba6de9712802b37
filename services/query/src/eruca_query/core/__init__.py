"""Decisions without I/O: read the log's bytes, and derive rows and answers from them."""
