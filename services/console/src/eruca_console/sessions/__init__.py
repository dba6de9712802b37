"""The callers: their sessions, cookies, and clients with their own keys."""
