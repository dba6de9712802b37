"""Requests: what they may hold, how it is read, and how it is refused."""
