"""Eruca on Spark: exports to a lake, reports on topics, replays; a command line for them."""
