"""Pulling: from each broker ahead of whoever polls, from where a consumer starts."""
